"""Reads a model's weights into the page cache, in parallel, before or while an engine starts.

One reader leaves a fast disk idle between its requests; an engine that maps its weights reads them page by
page. Several readers, each with a part of its own, keep the disk busy, and the engine then finds the pages.
The pages count as memory of whoever reads them: in a container with a small limit they are thrown out again,
so no more is read than its limit and the free memory hold.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Final

from sidecar.actuators.weights import WeightsError, shards

CHUNK: Final = 32 * 1024**2
BLOCK: Final = 4 * 1024**2
READERS: Final = 8
KEPT_FREE: Final = 0.1
"""Share of the memory that is available which is left alone."""
SAMPLES: Final = 256
MEMORY_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a prefetch has come."""

    path: str
    files: int
    total_bytes: int
    done_bytes: int
    seconds: float
    finished: bool
    problem: str = ""
    """Why it read nothing, or not all."""

    @property
    def bytes_per_second(self) -> float:
        """Since it began."""
        return self.done_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes at this rate; None while nothing is known."""
        if self.finished:
            return 0.0
        rate = self.bytes_per_second
        return (self.total_bytes - self.done_bytes) / rate if rate > 0 else None


class Prefetch:
    """One model. `run` once; `progress` at any time, from any thread."""

    def __init__(self, path: Path, readers: int = READERS) -> None:
        self._path = path
        self._readers = max(readers, 1)
        self._files = 0
        self._total = self._done = 0
        self._began: float | None = None
        self._ended: float | None = None
        self._problem = ""
        self._lock = Lock()
        self._stop = Event()

    def progress(self) -> Progress:
        """How far it has come."""
        with self._lock:
            until = self._ended if self._ended is not None else time.monotonic()
            return Progress(
                path=str(self._path),
                files=self._files,
                total_bytes=self._total,
                done_bytes=self._done,
                seconds=until - self._began if self._began is not None else 0.0,
                finished=self._ended is not None,
                problem=self._problem,
            )

    def cancel(self) -> None:
        """Have the readers stop soon."""
        self._stop.set()

    async def run(self) -> Progress:
        """Read everything; cancelling stops the readers. Never raises for what the disk does: `problem`
        says."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
            work = loop.run_in_executor(pool, self.read)
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                self.cancel()
                await asyncio.wait({work})
                raise

    def read(self) -> Progress:
        """As `run`, in the thread that calls it."""
        self._began = time.monotonic()
        try:
            self._read()
        except (WeightsError, OSError) as error:
            self._problem = self._problem or str(error)
        if self._stop.is_set():
            self._problem = self._problem or "stopped"
        self._ended = time.monotonic()
        return self.progress()

    def _read(self) -> None:
        sizes = [(file, file.stat().st_size) for file in shards(self._path)]
        whole = sum(size for _, size in sizes)
        room = memory_room()
        with self._lock:
            self._files = len(sizes)
            self._total = min(whole, room) if room is not None else whole
            if self._total < whole:
                self._problem = (
                    f"{whole / 1e9:.1f} GB of weights, and memory for {self._total / 1e9:.1f}: "
                    "the rest is not read ahead"
                )
        chunks = _chunks(sizes, self._total)
        with ThreadPoolExecutor(self._readers, thread_name_prefix="prefetch-reader") as pool:
            for job in [pool.submit(self._reader, chunks) for _ in range(self._readers)]:
                job.result()

    def _reader(self, chunks: Iterator[tuple[Path, int, int]]) -> None:
        # Sent to the null device, pages are read and not copied: half the CPU of reading into a buffer.
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while not self._stop.is_set():
                with self._lock:
                    chunk = next(chunks, None)
                if chunk is None:
                    return
                self._send(null, *chunk)
        finally:
            os.close(null)

    def _send(self, null: int, file: Path, start: int, end: int) -> None:
        # A descriptor of its own: the kernel reads ahead by descriptor, and readers that share one look like
        # random access.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_SEQUENTIAL)
            while start < end and not self._stop.is_set():
                got = os.sendfile(null, descriptor, start, min(BLOCK, end - start))
                if got == 0:
                    return
                start += got
                with self._lock:
                    self._done += got
        finally:
            os.close(descriptor)


def _chunks(sizes: list[tuple[Path, int]], limit: int) -> Iterator[tuple[Path, int, int]]:
    """Parts of the files in order, up to `limit` bytes in all: what an engine reads first is there first."""
    for file, size in sizes:
        for start in range(0, min(size, limit), CHUNK):
            yield file, start, min(start + CHUNK, size, limit)
        limit -= min(size, limit)
        if limit <= 0:
            return


def memory_room() -> int | None:
    """Bytes that the page cache may take: what is available, or the limit of the container that reads; None
    where neither is known."""
    found: list[int] = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(round(int(line.split()[1]) * 1024 * (1 - KEPT_FREE)))
    except (OSError, ValueError):
        pass
    for name in MEMORY_FILES:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(round(int(text) * (1 - KEPT_FREE)))
    return min(found, default=None)


def cached_share(files: list[Path]) -> float:
    """Share of the files that is in the page cache, by samples; reading them does not bring more in."""
    cached = asked = 0
    for file in files:
        size = file.stat().st_size
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for number in range(min(SAMPLES, max(size // 4096, 1))):
                asked += 1
                place = size * number // SAMPLES
                try:
                    cached += os.preadv(descriptor, [bytearray(1)], place, os.RWF_NOWAIT) == 1
                except BlockingIOError:
                    continue
        finally:
            os.close(descriptor)
    return cached / asked if asked else 0.0


def drop(files: list[Path]) -> None:
    """Put the files out of the page cache, as far as nobody maps them."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
