"""Brings up all systems of the overhead bench before one upstream."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.overhead import predictor
from bench.overhead.measure import System
from bench.overhead.peers import PEERS, PeerRouter
from bench.overhead.plain import PlainNginx
from bench.overhead.upstream import MODEL, Upstream
from bench.servers import gateway
from bench.servers.process import Process, StartError
from bench.servers.redis import Redis

WORKERS = (1, 2)
PREDICTING = "tokenweir-predictor"
"""Tokenweir with a trained predictor in service; without, it predicts by running figures."""
PATIENCE_S = 30
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Systems:
    """Everything that runs.

    `started` says of each peer how it is started, or why it could not be.
    """

    systems: dict[str, System] = field(default_factory=dict)
    workers: dict[str, int] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    beside: dict[str, Process] = field(default_factory=dict)
    """Processes that Tokenweir needs beside nginx; their CPU is told apart."""

    def plain_of(self, name: str) -> str:
        """Return the plain nginx that a system is compared with: of as many workers, else of one."""
        return f"nginx-{self.workers.get(name, 1)}"

    def kind(self, name: str) -> str:
        """Return the system's name without its number of workers."""
        return name.rsplit("-", 1)[0] if name in self.workers else name


def start(folder: Path, stack: contextlib.ExitStack, say: Callable[[str], None]) -> Systems:
    """Start the upstream, plain nginx, Tokenweir and the peers; `stack` stops them."""
    upstream = stack.enter_context(Upstream(folder / "upstream"))
    found = Systems()
    redis, publisher = _redis(upstream, folder / "redis", stack)
    found.beside = {"redis": redis, "publisher": publisher}
    for workers in WORKERS:
        name = f"nginx-{workers}"
        found.systems[name] = stack.enter_context(PlainNginx(upstream.ports, workers, folder / name))
        found.workers[name] = workers
        name = f"tokenweir-{workers}"
        say(f"starting {name}")
        found.systems[name] = stack.enter_context(_tokenweir(name, workers, upstream, redis, folder / name))
        found.workers[name] = workers
    say("training a predictor")
    trained, _ = _redis(upstream, folder / "redis-predictor", stack)
    predictor.publish(trained.url)
    name = f"{PREDICTING}-1"
    say(f"starting {name}")
    server = _tokenweir(name, 1, upstream, trained, folder / name)
    found.systems[name] = stack.enter_context(server)
    server.wait_until(lambda: _predicts(server), "predicting", PATIENCE_S)
    found.workers[name] = 1
    for peer in PEERS:
        say(f"starting {peer.name} (its first time here installs it)")
        try:
            found.systems[peer.name] = stack.enter_context(
                PeerRouter(peer, upstream.urls, folder / peer.name)
            )
            found.started[peer.name] = peer.command
        except StartError as error:
            found.started[peer.name] = f"not started: {error}"
            say(f"{peer.name}: {found.started[peer.name]}")
    return found


def _redis(upstream: Upstream, folder: Path, stack: contextlib.ExitStack) -> tuple[Redis, Process]:
    """A Redis, and what publishes the fleet in it."""
    redis = stack.enter_context(Redis(folder))
    publisher = stack.enter_context(
        Process(
            "publisher",
            [sys.executable, "-m", "bench.servers.publisher", redis.url, MODEL, *map(str, upstream.ports)],
            folder / "publisher.log",
            cwd=ROOT,
        )
    )
    return redis, publisher


def _predicts(server: gateway.Gateway) -> bool:
    return server.metrics().get(f'tokenweir_predictor{{version="{predictor.VERSION}"}}', 0) > 0


def _tokenweir(name: str, workers: int, upstream: Upstream, redis: Redis, folder: Path) -> gateway.Gateway:
    configuration = gateway.write_configuration(
        folder,
        {
            "listen": {"workers": workers},
            "redis": {"port": redis.port},
            "gateway_id": name,
            "backends": [{"url": url, "models": [MODEL], "engine": "vllm"} for url in upstream.urls],
        },
    )
    server = gateway.Gateway(configuration, folder, name)
    try:
        server.wait_ready()
    except StartError:
        server.stop()
        raise
    return server
