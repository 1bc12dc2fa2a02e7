"""The shipped ACL file on a real Redis: each user can do its work and nothing else."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.integration.servers import wait_until
from tests.ports import free_port
from tokenweir.contract import names
from tokenweir.stack.credentials import TEMPLATE, password_files, render_acl

WORK = [
    ("gateway", ["MGET", names.SNAPSHOT, names.SETTINGS, names.STATS]),
    ("gateway", ["GET", names.SNAPSHOT]),
    ("gateway", ["SET", f"{names.GATEWAY}a", "{}", "PX", "3000"]),
    ("gateway", ["ZADD", names.GATEWAYS, "1", "a"]),
    ("gateway", ["GETRANGE", names.SNAPSHOT, "0", "255"]),
    ("gateway", ["ZREVRANGE", names.GATEWAYS, "0", "10"]),
    ("gateway", ["ZREMRANGEBYSCORE", names.GATEWAYS, "-inf", "0"]),
    ("gateway", ["MGET", f"{names.GATEWAY}a", f"{names.GATEWAY}b"]),
    ("gateway", ["XADD", names.COMPLETIONS, "MAXLEN", "~", "10", "*", names.COMPLETIONS_BATCH, "[]"]),
    ("gateway", ["XADD", names.SESSION_MOVES, "MINID", "~", "1", "*", names.SESSION_MOVES_BATCH, "x"]),
    ("gateway", ["XRANGE", names.SESSION_MOVES, "-", "+", "COUNT", "1"]),
    ("gateway", ["XTRIM", names.SESSION_MOVES, "MAXLEN", "~", "10"]),
    ("gateway", ["GET", names.PREDICTOR_CURRENT]),
    ("gateway", ["GET", f"{names.PREDICTOR_MODEL}v"]),
    ("gateway", ["GET", names.HISTORIES]),
    ("gateway", ["TIME"]),
    ("sidecar", ["SET", names.HISTORIES, "{}"]),
    ("sidecar", ["SET", names.PREDICTOR_CURRENT, "{}"]),
    ("sidecar", ["DEL", f"{names.PREDICTOR_MODEL}v"]),
    ("sidecar", ["EXISTS", names.PREDICTOR_CURRENT]),
    ("sidecar", ["SET", names.SNAPSHOT, "{}"]),
    ("sidecar", ["SET", names.SETTINGS, "{}"]),
    ("sidecar", ["SET", names.STATS, "{}"]),
    ("sidecar", ["SET", names.LEARNED, "{}"]),
    ("sidecar", ["SET", f"{names.SIDECARS}a", "1", "PX", "3000"]),
    (
        "sidecar",
        ["EVAL", f"return redis.call('SET', '{names.LEADER}', '1:a', 'PX', 2000)", "1", names.LEADER],
    ),
    ("sidecar", ["EVAL", f"return redis.call('SET', '{names.FENCE}', '1')", "1", names.FENCE]),
    ("sidecar", ["EVAL", "return redis.call('TIME')", "0"]),
    ("sidecar", ["MGET", f"{names.GATEWAY}a"]),
    ("sidecar", ["ZRANGEBYSCORE", names.GATEWAYS, "0", "+inf"]),
    ("sidecar", ["XGROUP", "CREATE", names.COMPLETIONS, names.COMPLETIONS_GROUP, "0", "MKSTREAM"]),
    ("sidecar", ["XREADGROUP", "GROUP", names.COMPLETIONS_GROUP, "a", "STREAMS", names.COMPLETIONS, ">"]),
    ("sidecar", ["XACK", names.COMPLETIONS, names.COMPLETIONS_GROUP, "1-1"]),
    ("sidecar", ["XDEL", names.COMPLETIONS, "1-1"]),
    ("sidecar", ["XLEN", names.COMPLETIONS]),
    ("sidecar", ["INFO", "memory"]),
    ("sidecar", ["GET", names.CHANGES]),
]

FORBIDDEN = [
    ("gateway", ["SET", names.SNAPSHOT, "{}"]),
    ("gateway", ["SET", names.SETTINGS, "{}"]),
    ("gateway", ["SET", names.STATS, "{}"]),
    ("gateway", ["SET", names.HISTORIES, "{}"]),
    ("gateway", ["SET", names.PREDICTOR_CURRENT, "{}"]),
    ("gateway", ["SET", f"{names.PREDICTOR_MODEL}v", "{}"]),
    ("gateway", ["GET", names.LEADER]),
    ("gateway", ["SET", names.LEADER, "9:a"]),
    ("gateway", ["XRANGE", names.COMPLETIONS, "-", "+"]),
    ("gateway", ["EVAL", "return 1", "0"]),
    ("sidecar", ["SET", f"{names.GATEWAY}a", "{}"]),
    ("sidecar", ["XRANGE", names.SESSION_MOVES, "-", "+"]),
    ("sidecar", ["ZREMRANGEBYSCORE", names.GATEWAYS, "0", "1"]),
    ("sidecar", ["XADD", names.COMPLETIONS, "*", names.COMPLETIONS_BATCH, "[]"]),
    ("sidecar", ["EVAL", f"return redis.call('SET', '{names.GATEWAY}a', '{{}}')", "0"]),
    *[
        (user, command)
        for user in ("gateway", "sidecar")
        for command in (
            ["GET", "other"],
            ["SET", "other", "1"],
            ["KEYS", "*"],
            ["FLUSHALL"],
            ["CONFIG", "GET", "*"],
            ["ACL", "LIST"],
            ["SHUTDOWN", "NOSAVE"],
            ["MONITOR"],
            ["SUBSCRIBE", "x"],
            ["SCRIPT", "FLUSH"],
        )
    ],
]


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port of a Redis with the shipped users, and the folder of their passwords."""
    folder = tmp_path_factory.mktemp("redis")
    (folder / "users.acl").write_text(render_acl(password_files(folder)))
    port = free_port()
    binary = shutil.which("redis-server")
    assert binary, "apt-get install redis-server"
    argv = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen([*argv, "--aclfile", str(folder / "users.acl")]) as process:
        wait_until(lambda: _answers(port), what="redis-server")
        yield port, folder
        process.terminate()


def named(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)


def connect(server: tuple[int, Path], user: str) -> redis.Redis:
    port, folder = server
    return client(port, user, password_files(folder)[user].read_text())


def client(port: int, user: str | None = None, password: str | None = None) -> redis.Redis:
    return redis.Redis(port=port, username=user, password=password, protocol=2, retry=Retry(NoBackoff(), 0))


@pytest.mark.parametrize(
    ("user", "command"), WORK, ids=lambda value: " ".join(value) if isinstance(value, list) else value
)
def test_a_user_can_do_its_work(server: tuple[int, Path], user: str, command: list[str]) -> None:
    with connect(server, user) as connected:
        connected.execute_command(*command)


@pytest.mark.parametrize(
    ("user", "command"), FORBIDDEN, ids=lambda value: " ".join(value) if isinstance(value, list) else value
)
def test_a_user_can_do_nothing_else(server: tuple[int, Path], user: str, command: list[str]) -> None:
    with (
        connect(server, user) as connected,
        pytest.raises(redis.RedisError, match=r"(?i)no permissions|can't access|doesn't have"),
    ):
        connected.execute_command(*command)


def test_every_command_that_the_gateway_sends_is_allowed_to_it(root: Path) -> None:
    sent = set()
    for source in (root / "lua/tokenweir").glob("*.lua"):
        code = re.sub(r"--.*", "", source.read_text())
        sent |= set(re.findall(r"\{\s*\"([A-Z]{3,})\"\s*,", code))
    allowed = next(line for line in TEMPLATE.read_text().splitlines() if line.startswith("user gateway"))
    assert len(sent) >= 5
    assert {f"+{command.lower()}" for command in sent} <= set(allowed.split())


def test_nobody_gets_in_without_a_password(server: tuple[int, Path]) -> None:
    with client(server[0]) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.get(names.SNAPSHOT)


def test_a_wrong_password_is_refused(server: tuple[int, Path]) -> None:
    with client(server[0], "gateway", "wrong") as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
