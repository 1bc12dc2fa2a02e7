"""The product as `docker compose --profile demo up` runs it, on free ports, in a project of its own."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from testcontainers.compose import DockerCompose


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Stack:
    """A running stack."""

    project: str
    gateway_port: int
    admin_port: int
    environment: dict[str, str]
    root: Path

    @property
    def base_url(self) -> str:
        """For OpenAI clients."""
        return f"http://127.0.0.1:{self.gateway_port}/v1"

    @property
    def admin_url(self) -> str:
        """Of the admin API."""
        return f"http://127.0.0.1:{self.admin_port}"

    def compose(self, *arguments: str) -> str:
        """Run `docker compose ARGUMENTS` for this stack; its output. Raises CalledProcessError."""
        done = subprocess.run(
            ["docker", "compose", "--ansi", "never", "--profile", "demo", *arguments],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"docker compose {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def documented(self, script: str, environment: dict[str, str] | None = None, seconds: float = 300) -> str:
        """Run a documented block as a person would, against this stack; what it prints."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("8081", str(self.admin_port))],
            cwd=self.root,
            env=environment or self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def token(self) -> str:
        """The admin API's generated token, as an operator reads it."""
        return self.compose("exec", "-T", "sidecar", "cat", "/var/lib/tokenweir/secrets/admin-token").strip()

    def admin(self, path: str) -> httpx.Response:
        """A GET of the admin API with the token."""
        headers = {"Authorization": f"Bearer {self.token()}"}
        return httpx.get(f"{self.admin_url}{path}", headers=headers, timeout=5, trust_env=False)

    def until_ready(self, backends: int = 4, seconds: float = 60) -> None:
        """Wait until the sidecar sees this many ready backends and the gateway takes requests."""
        until = time.monotonic() + seconds
        seen = "nothing"
        while time.monotonic() < until:
            try:
                gateway = httpx.get(self.base_url.replace("/v1", "/readyz"), timeout=2, trust_env=False)
                fleet = self.admin("/api/fleet").json()
                seen = f"gateway {gateway.status_code} {gateway.text}, fleet {fleet}"
                if gateway.status_code == 200 and fleet["ready"] == backends and fleet["gateways"] == 1:
                    return
            except (httpx.HTTPError, KeyError) as error:
                seen = repr(error)
            time.sleep(0.3)
        raise AssertionError(f"not ready after {seconds} s: {seen}")


@pytest.fixture(scope="session")
def stack(root: Path) -> Iterator[Stack]:
    """The whole stack with the demo fleet, built and up; taken down with its volumes at the end."""
    gateway, admin = free_port(), free_port()
    variables = {
        "COMPOSE_PROJECT_NAME": f"tokenweir-test-{secrets.token_hex(4)}",
        "GATEWAY_PORT": str(gateway),
        "ADMIN_PORT": str(admin),
    }
    os.environ.update(variables)
    engine = DockerCompose(root, profiles=["demo"], build=True, wait=True)
    try:
        engine.start()
        running = Stack(variables["COMPOSE_PROJECT_NAME"], gateway, admin, dict(os.environ), root)
        running.until_ready()
        yield running
    except BaseException:
        print(
            "\n".join(
                part.decode(errors="replace") if isinstance(part, bytes) else part
                for part in engine.get_logs()
            )
        )
        raise
    finally:
        engine.stop(down=True)
        for name in variables:
            os.environ.pop(name)
