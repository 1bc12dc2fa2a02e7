"""Other routers from their PyPI wheels, each pinned in a virtual environment of its own."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.servers import ports
from bench.servers.process import Process, StartError

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv-peers"
LOCKS = Path(__file__).with_name("peers")


@dataclass(frozen=True)
class Peer:
    """How one router is started: its program, and the level at which it logs no line a request."""

    name: str
    program: str
    log_level: str

    def arguments(
        self, upstreams: Sequence[str], port: int, spare: int, policy: str = "round_robin"
    ) -> list[str]:
        """Return the arguments: listening on `port`, its metrics on `spare`."""
        return [
            *("--worker-urls", *upstreams, "--policy", policy),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(spare)),
            *("--log-level", self.log_level),
        ]

    @property
    def command(self) -> str:
        """The command in short, for the result file."""
        return f"{self.program} --worker-urls ... --policy round_robin --log-level {self.log_level}"


PEERS = (
    Peer("vllm-router", "vllm-router", "warning"),
    Peer("sglang-router", "python -m sglang_router.launch_router", "warn"),
    Peer("smg", "smg launch", "warn"),
)


def install(name: str) -> Path:
    """Make the peer's virtual environment unless it is there for this lock; return its `bin` folder."""
    lock = LOCKS / f"{name}.lock"
    folder = ENVIRONMENTS / name
    stamp = folder / ".lock-digest"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest):
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [
                *(
                    str(folder / "bin/python"),
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ),
                *("--require-hashes", "--only-binary", ":all:", "-r", str(lock)),
            ],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise StartError(f"{name} could not be installed:\n{done.stderr[-2000:]}")
        stamp.write_text(digest)
    return folder / "bin"


class PeerRouter(Process):
    """One peer, started in a single process before the upstreams."""

    def __init__(
        self, peer: Peer, upstreams: Sequence[str], folder: Path, policy: str = "round_robin"
    ) -> None:
        bin_folder = install(peer.name)
        folder.mkdir(parents=True, exist_ok=True)
        self.port, spare = ports.free_ports(2)
        program, *rest = peer.program.split()
        argv = [str(bin_folder / program), *rest, *peer.arguments(upstreams, self.port, spare, policy)]
        super().__init__(peer.name, argv, folder / "out.log", cwd=folder)
        try:
            self.wait_until(lambda: ports.listening(self.port), f"listening on port {self.port}", 40)
        except StartError:
            self.stop()
            raise
