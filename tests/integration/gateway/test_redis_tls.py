"""The gateway speaks TLS to Redis and verifies whom it speaks to."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.gateway.gateway import Gateway, settings, snapshot
from tests.integration.servers import RedisServer, wait_until
from tests.ports import free_port

StartGateway = Callable[..., Gateway]


@pytest.fixture
def certificate() -> Iterator[Path]:
    """A self-signed certificate of `redis.test`; its key lies beside it. The workers' user can read it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    path = folder / "redis.crt"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", "/CN=redis.test", "-addext", "subjectAltName=DNS:redis.test"]
    command += ["-keyout", str(path.with_suffix(".key")), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    yield path
    shutil.rmtree(folder)


@pytest.fixture
def tls_port(tmp_path: Path, certificate: Path) -> Iterator[int]:
    """The TLS port of a Redis with a snapshot in it."""
    port = free_port()
    key = certificate.with_suffix(".key")
    options = ["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    server = RedisServer(tmp_path / "tls-redis", [*options, "--tls-auth-clients", "no"]).start()
    client: redis.Redis = server.client()
    client.set("tw:settings", settings())
    client.set("tw:snapshot", snapshot(1, 1))
    yield port
    server.stop()


def test_the_snapshot_comes_over_tls(start_gateway: StartGateway, certificate: Path, tls_port: int) -> None:
    gateway = start_gateway(
        redis={"port": tls_port, "tls": True, "tls_name": "redis.test"},
        extra=f"lua_ssl_trusted_certificate {certificate};",
    )
    wait_until(lambda: gateway.json("state").get("backends"), what="the snapshot")


def test_a_redis_of_another_name_is_not_trusted(
    start_gateway: StartGateway, certificate: Path, tls_port: int
) -> None:
    gateway = start_gateway(
        redis={"port": tls_port, "tls": True, "tls_name": "other.test"},
        extra=f"lua_ssl_trusted_certificate {certificate};",
    )
    wait_until(lambda: "TLS: " in gateway.nginx.error_log(), what="the complaint")
    assert gateway.json("state").get("backends") is None
