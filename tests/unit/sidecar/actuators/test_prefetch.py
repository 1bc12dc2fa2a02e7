"""Weights read ahead: all of them, into the page cache, with progress, and no more than fits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sidecar.actuators import prefetch as prefetch_module
from sidecar.actuators.prefetch import Prefetch, Progress, cached_share, drop, memory_room

SIZE = 3 * 1024**2 + 17


@pytest.fixture
def model(root):
    """Two shards on the disk of the repository: a folder in memory has no page cache of its own."""
    folder = root / ".prefetch-test"
    folder.mkdir(exist_ok=True)
    files = [folder / f"model-{number}.safetensors" for number in (1, 2)]
    for file in files:
        with file.open("wb") as out:
            out.write(os.urandom(SIZE))
            out.flush()
            os.fsync(out.fileno())
    yield files
    for file in files:
        file.unlink()
    folder.rmdir()


def test_every_byte_is_read_and_in_the_page_cache_after(model):
    drop(model)
    assert cached_share(model) < 0.1
    progress = Prefetch(model[0].parent).read()
    assert (progress.files, progress.done_bytes, progress.total_bytes) == (2, 2 * SIZE, 2 * SIZE)
    assert (progress.finished, progress.problem, progress.left_s) == (True, "", 0)
    assert progress.bytes_per_second > 0
    assert cached_share(model) == 1


@pytest.mark.parametrize("readers", [1, 3, 64])
def test_the_number_of_readers_changes_nothing_about_what_is_read(model, readers, monkeypatch):
    monkeypatch.setattr(prefetch_module, "CHUNK", 100_000)
    monkeypatch.setattr(prefetch_module, "BLOCK", 4096)
    assert Prefetch(model[0].parent, readers).read().done_bytes == 2 * SIZE


def test_no_more_is_read_than_memory_holds(model, monkeypatch):
    monkeypatch.setattr(prefetch_module, "memory_room", lambda: SIZE + 1000)
    progress = Prefetch(model[0].parent).read()
    assert (progress.done_bytes, progress.total_bytes) == (SIZE + 1000, SIZE + 1000)
    assert "the rest is not read ahead" in progress.problem


def test_a_limit_of_the_container_counts(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    limit.write_text("104857600\n")
    monkeypatch.setattr(prefetch_module, "MEMORY_FILES", (str(limit),))
    assert memory_room() == round(104857600 * 0.9)
    limit.write_text("max\n")
    assert memory_room() > 104857600


def test_what_cannot_be_read_is_said(tmp_path):
    progress = Prefetch(tmp_path / "gone").read()
    assert (progress.finished, progress.done_bytes) == (True, 0)
    assert "no such file or folder" in progress.problem


async def test_progress_can_be_watched_and_a_stop_is_soon(model, monkeypatch):
    monkeypatch.setattr(prefetch_module, "CHUNK", 8192)
    monkeypatch.setattr(prefetch_module, "BLOCK", 4096)
    prefetch = Prefetch(model[0].parent, 1)
    real, stopped = os.sendfile, []

    def slow(out, into, start, count):
        if prefetch.progress().done_bytes > 40_000 and not stopped:
            stopped.append(prefetch.progress())
            prefetch.cancel()
        return real(out, into, start, count)

    monkeypatch.setattr(os, "sendfile", slow)
    progress = await prefetch.run()
    assert stopped[0].left_s > 0
    assert not stopped[0].finished
    assert progress.done_bytes < 60_000
    assert (progress.finished, progress.problem) == (True, "stopped")


async def test_who_waits_may_go_and_the_readers_stop(model, monkeypatch):
    monkeypatch.setattr(prefetch_module, "BLOCK", 1)
    prefetch = Prefetch(model[0].parent, 1)
    task = asyncio.create_task(prefetch.run())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert prefetch.progress().finished
    assert prefetch.progress().done_bytes < 2 * SIZE


def test_before_anything_is_read_nothing_is_claimed():
    progress = Prefetch(Path("/nowhere")).progress()
    assert (progress.done_bytes, progress.seconds, progress.finished, progress.left_s) == (0, 0, False, None)
    assert Progress("x", 1, 100, 0, 0, finished=False).bytes_per_second == 0
