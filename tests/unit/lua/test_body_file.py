"""`lua/tokenweir/body_file.lua` and `mapped_file.lua`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tokenweir.luavm import new_runtime

MIB = 1024 * 1024


class Thread:
    """What a worker thread has: a Lua of its own with the module, and plain values in and out."""

    def __init__(self) -> None:
        self.runtime = new_runtime()
        self.body_file = self._require("body_file")
        self.posix = self._require("posix")
        self.request = self._require("core.body.request")
        self.digests = self._require("core.body.prompt_digest")
        self.splice = self._require("core.json.splice")

    def _require(self, name: str) -> Any:
        module = self.runtime.eval(f'require("tokenweir.{name}")'.encode())
        return module[0] if isinstance(module, tuple) else module

    def inspect(self, path: Path, kind: str = "chat") -> dict[str, Any]:
        found = self.body_file.inspect(bytes(path), kind.encode())
        return {k.decode(): v for k, v in found.items()}

    def rewrite(self, path: Path, out: Path, *edits: Any) -> Any:
        assert self.posix.create(bytes(out)) is True
        return self.body_file.rewrite(bytes(path), bytes(out), *edits)

    def parse(self, body: bytes, kind: str = "chat") -> Any:
        out = self.runtime.table()
        ok, *refusal = self.request.parse(kind.encode(), body, out)
        return out if ok else refusal


@pytest.fixture(scope="module")
def thread() -> Thread:
    return Thread()


def plain(value: Any) -> Any:
    """A Lua table as a dictionary."""
    return {k: plain(v) for k, v in value.items()} if hasattr(value, "items") else value


def anonymous_bytes() -> int:
    """Memory of this process that is its own, not the kernel's copy of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A body of 64 MiB: prose and code."""
    path = tmp_path_factory.mktemp("bodies") / "large"
    line = json.dumps('The value of "name" is printed.\n')[1:-1].encode()
    with path.open("wb") as file:
        file.write(b'{"model":"m","messages":[{"role":"user","content":"')
        for _ in range(64):
            file.write(line * (MIB // len(line)))
        file.write(b'"}],"max_tokens":700,"user":"u1"}')
    return path


def test_a_file_of_64_mib_is_read_without_a_copy_of_it(thread: Thread, large: Path) -> None:
    thread.inspect(large)
    before = anonymous_bytes()
    found = thread.inspect(large)
    assert anonymous_bytes() - before < 4 * MIB
    assert (found["ok"], found["model"], found["max_tokens"], found["messages"]) == (True, b"m", 700, 1)
    assert found["size"] == large.stat().st_size
    assert found["prompt_bytes"] == pytest.approx(large.stat().st_size * 32 / 35, rel=0.01)
    assert found["texts"][b"user"] == b"u1"


def test_a_file_of_64_mib_is_rewritten_without_a_copy_of_it(
    thread: Thread, large: Path, tmp_path: Path
) -> None:
    out = tmp_path / "changed"
    before = anonymous_bytes()
    size = thread.rewrite(large, out, 11, 11, b"other")
    assert anonymous_bytes() - before < 4 * MIB
    assert size == out.stat().st_size == large.stat().st_size + 4
    assert out.stat().st_mode & 0o777 == 0o600
    with large.open("rb") as old, out.open("rb") as new:
        assert new.read(20) == b'{"model":"other","me'
        old.seek(16)
        while chunk := old.read(MIB):
            assert new.read(MIB) == chunk


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 65535, 65536, 65537, 131072])
def test_a_file_is_read_to_its_last_byte_and_not_beyond(thread: Thread, tmp_path: Path, size: int) -> None:
    path = tmp_path / "body"
    frame = b'{"model":"","n":2}'
    padding = max(0, size - len(frame))
    path.write_bytes(b" " * padding + frame)
    assert thread.inspect(path)["n"] == 2
    path.write_bytes((b" " * padding + frame)[:-1])
    found = thread.inspect(path)
    assert found["code"] == b"invalid_json"
    assert (
        found["message"]
        == f"Invalid JSON: expected ',' or '}}' at byte offset {padding + len(frame) - 1}.".encode()
    )
    path.write_bytes(b"7" * size)
    assert thread.inspect(path)["ok"] is False


BODIES: list[dict[str, Any]] = [
    {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True, "n": 2},
    {"model": "é", "messages": [], "max_completion_tokens": 4, "prompt_cache_key": "k"},
    {},
]


@pytest.mark.parametrize("body", BODIES)
def test_it_finds_what_is_found_in_memory(thread: Thread, tmp_path: Path, body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    path = tmp_path / "body"
    path.write_bytes(text)
    parsed = thread.parse(text)
    digest, opening = thread.digests.digest(parsed), thread.digests.opening_digest(parsed)
    out = thread.runtime.table()
    thread.request.adopt(out, thread.body_file.inspect(bytes(path), b"chat"), bytes(path))
    for name in (
        b"model",
        b"stream",
        b"n",
        b"max_tokens",
        b"prompt_bytes",
        b"messages",
        b"prompts",
        b"kind",
        b"size",
    ):
        assert out[name] == parsed[name]
    assert (thread.digests.digest(out), thread.digests.opening_digest(out)) == (digest, opening)
    assert thread.request.text(out, b"prompt_cache_key") == thread.request.text(parsed, b"prompt_cache_key")
    for name in body:
        assert thread.request.span(out, name.encode()) == thread.request.span(parsed, name.encode())


def test_a_body_in_memory_is_read_as_one_in_a_file(thread: Thread, tmp_path: Path) -> None:
    path = tmp_path / "body"
    bias = {str(k): -100 for k in range(30_000)}
    for body in (*BODIES, {"model": "m", "logit_bias": bias, "n": 2}, {"model": 7}):
        path.write_bytes(json.dumps(body).encode())
        found = thread.body_file.inspect_text(path.read_bytes(), b"chat")
        expected = thread.inspect(path)
        for name, value in expected.items():
            assert plain(found[name.encode()]) == plain(value), name


def test_an_adopted_body_leaves_nothing_for_the_next_request(thread: Thread, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b'{"model":"m","user":"u","messages":[{"role":"user","content":"x"}]}')
    out = thread.runtime.table()
    thread.request.adopt(out, thread.body_file.inspect(bytes(path), b"chat"), bytes(path))
    assert out.file == bytes(path)
    assert thread.request.parse(b"chat", b'{"messages":[]}', out)[0] is True
    assert (out.file, out.found, out.model, thread.request.text(out, b"user")) == (False, False, False, None)


def test_edits_planned_on_an_adopted_body_can_be_written(thread: Thread, tmp_path: Path) -> None:
    path, out_path = tmp_path / "body", tmp_path / "changed"
    path.write_bytes(b'{"model":"a","model":"a","n":3}')
    out, edits = thread.runtime.table(), thread.runtime.table()
    thread.request.adopt(out, thread.body_file.inspect(bytes(path), b"chat"), bytes(path))
    thread.splice.set_member(edits, out, b"model", b'"bb"')
    thread.splice.set_member(edits, out, b"max_tokens", b"256")
    assert thread.rewrite(path, out_path, *edits.values()) == out_path.stat().st_size
    assert out_path.read_bytes() == b'{"model":"bb","model":"bb","n":3,"max_tokens":256}'


def test_what_the_client_did_wrong_is_told_as_in_memory(thread: Thread, tmp_path: Path) -> None:
    path = tmp_path / "body"
    for text in (b'{"model":5}', b'{"n":0}', b"{", b"[]"):
        path.write_bytes(text)
        found = thread.inspect(path)
        code, message, *param = thread.parse(text)
        assert (found["ok"], found["code"], found["message"]) == (False, code, message)
        assert found.get("param") == (param[0] if param else None)


def test_members_in_conflict_are_refused(thread: Thread, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b'{"model":"a","model":"b"}')
    found = thread.inspect(path)
    assert (found["code"], found["param"]) == (b"invalid_member", b"model")


def test_a_file_that_cannot_be_read_is_the_gateways_own_trouble(thread: Thread, tmp_path: Path) -> None:
    found = thread.inspect(tmp_path / "absent")
    assert found["code"] == b"unreadable"
    assert b"absent: No such file or directory" in found["message"]
    assert thread.rewrite(tmp_path / "absent", tmp_path / "out", 1, 1, b"x")[0] is None


def test_a_rewrite_whose_file_was_removed_meanwhile_makes_none(thread: Thread, tmp_path: Path) -> None:
    path, out = tmp_path / "body", tmp_path / "out"
    path.write_bytes(b"{}")
    told, message = thread.body_file.rewrite(bytes(path), bytes(out), 1, 0, b"x")
    assert told is None
    assert b"No such file" in message
    assert not out.exists()


def test_edits_beyond_the_file_are_an_error(thread: Thread, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b"{}")
    assert thread.rewrite(path, tmp_path / "out", 9, 9, b"x")[0] is None


def test_no_file_descriptor_is_left_open(thread: Thread, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b'{"model":"m"}')
    thread.inspect(path)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for k in range(20):
        thread.inspect(path)
        thread.inspect(tmp_path / "absent")
        thread.rewrite(path, tmp_path / f"out{k}", 1, 0, b" ")
        thread.body_file.rewrite(bytes(path), bytes(tmp_path / "absent"), 1, 0, b" ")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
