"""One way between two agents: a process group of two, in which the receiver is rank 0.

Its members meet in the TCPStore of the receiver. Each pair has its own group, not the default one of torch:
agents come and go, and one that dies must break only its own links. `send` and `receive` block: they are for
threads.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

PIECE: Final = 1024**2
"""Bytes that are sent at once, about: between two pieces a slower pace can be kept."""
RECEIVER, SENDER = 0, 1
LATEST_S: Final = 0.001


class LinkError(Exception):
    """A link is broken; the text says how."""


def device() -> str:
    """What tells this process's GPU from others; empty without one."""
    if not torch.cuda.is_available():
        return ""
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def backend_between(receiver: str, sender: str) -> str:
    """`nccl` where both have a GPU, each its own; `gloo`, through the host's memory, elsewhere."""
    return "nccl" if receiver and sender and receiver != sender and dist.is_nccl_available() else "gloo"


class Meeting:
    """The store in which links of this receiver are made, on one address."""

    def __init__(self, host: str) -> None:
        self.host = host
        listening = socket.create_server((host, 0), family=_family(host))
        self.port: int = listening.getsockname()[1]
        self.store = dist.TCPStore(
            host,
            self.port,
            is_master=True,
            wait_for_workers=False,
            # By itself it would listen on every address of the host.
            master_listen_fd=listening.detach(),
        )


def meet(host: str, port: int, seconds: float) -> Any:
    """A receiver's store, for its sender. Raises LinkError."""
    patience = timedelta(seconds=seconds)
    try:
        return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=patience)
    except (RuntimeError, ValueError) as error:
        raise LinkError(f"{host}:{port} cannot be met: {_first_line(error)}") from None


@dataclass(frozen=True, slots=True)
class End:
    """One of the two: what it is, its own address, and by what they talk."""

    rank: int
    host: str
    backend: str


class Link:
    """One end of a link."""

    def __init__(self, store: Any, name: str, end: End, seconds: float) -> None:
        """Raises LinkError where the other does not come within `seconds`."""
        self.backend = end.backend
        self._peer = SENDER if end.rank == RECEIVER else RECEIVER
        self._device = torch.device("cuda" if end.backend == "nccl" else "cpu")
        self._group = _group(dist.PrefixStore(name, store), end, seconds)

    def send(
        self, blocks: Any, until: float, pace: float | None = None, on_piece: Callable[[], None] | None = None
    ) -> None:
        """Send a tensor of rows by `until` (time.monotonic), at most `pace` bytes a second; `on_piece` is
        called after each piece. Raises LinkError."""
        blocks = blocks.to(self._device).contiguous()
        began, sent = time.monotonic(), 0
        for piece in _pieces(blocks):
            self._do(self._group.send, piece, until)
            sent += piece.numel()
            if on_piece is not None:
                on_piece()
            if pace is not None:
                time.sleep(max(0.0, min(began + sent / pace, until) - time.monotonic()))
        self._settle()

    def receive(self, rows: int, width: int, until: float) -> Any:
        """The tensor that the other sends, on this process's own device. Raises LinkError."""
        blocks = torch.empty((rows, width), dtype=torch.uint8, device=self._device)
        for piece in _pieces(blocks):
            self._do(self._group.recv, piece, until)
        self._settle()
        return blocks.cuda() if torch.cuda.is_available() else blocks

    def _do(self, act: Any, piece: Any, until: float) -> None:
        left = max(LATEST_S, until - time.monotonic())
        try:
            act([piece], self._peer, 0).wait(timedelta(seconds=left))
        except (RuntimeError, ValueError) as error:
            raise LinkError(_first_line(error)) from None

    def _settle(self) -> None:
        if self.backend == "nccl":
            torch.cuda.synchronize()


def _group(store: Any, end: End, seconds: float) -> Any:
    patience = timedelta(seconds=seconds)
    try:
        if end.backend == "nccl":
            # Without it a wait ends before the transfer does.
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = patience
            return dist.ProcessGroupNCCL(store, end.rank, 2, options)
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=end.host)]
        options._timeout = patience
        return dist.ProcessGroupGloo(store, end.rank, 2, options)
    except (RuntimeError, ValueError) as error:
        raise LinkError(_first_line(error)) from None


def _pieces(blocks: Any) -> list[Any]:
    rows = max(1, PIECE // max(1, blocks.shape[1]))
    return [blocks[k : k + rows] for k in range(0, blocks.shape[0], rows)]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
