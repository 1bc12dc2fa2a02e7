"""Four emulated servers of unequal kinds, three real ones, and the systems put before them, one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.overhead.peers import PEERS, PeerRouter
from bench.overhead.plain import CONFIGURATION
from bench.policy.server import ServerSpec
from bench.servers import gateway, nginx, ports
from bench.servers.engine import Engine, EngineKind
from bench.servers.llama import MODEL as SMALL_MODEL
from bench.servers.llama import LlamaEngine
from bench.servers.redis import Redis
from bench.servers.sidecar import Sidecar
from emulator.engine import Exhaustion

MODEL: Final = "llama-3-8b"
SPEED: Final = 0.5
"""Engines run at half their pace: what is measured is then not the Python of clients and servers."""
KINDS: Final = (
    EngineKind("A100-80G", MODEL, "preempt", SPEED),
    EngineKind("A100-80G", MODEL, "crash", SPEED, capacity=24_000),
    EngineKind("H100", MODEL, "preempt", SPEED),
    EngineKind("T4", MODEL, "preempt", SPEED, precision="int4"),
)
REAL: Final = ((1024, 4), (512, 4), (512, 4))
"""KV tokens and slots of the real engines."""
POLICIES: Final = {"smg": "least_load", "vllm-router": "cache_aware", "sglang-router": "cache_aware"}
SYSTEMS: Final = ("tokenweir", "nginx least_conn", *POLICIES)


def specs() -> list[ServerSpec]:
    """The same servers, for the simulator. Of their precision the configuration says nothing."""
    return [
        ServerSpec(
            gpu=kind.gpu,
            model=kind.model,
            precision=kind.precision,
            capacity=kind.capacity,
            kind=Exhaustion(kind.kind),
            told="",
        )
        for kind in KINDS
    ]


@contextlib.contextmanager
def engines(folder: Path) -> Iterator[list[Engine]]:
    """The servers, ready."""
    with contextlib.ExitStack() as stack:
        found = [
            stack.enter_context(Engine(f"engine-{number}", kind, folder)) for number, kind in enumerate(KINDS)
        ]
        for engine in found:
            engine.wait_ready()
        yield found


@contextlib.contextmanager
def real_engines(folder: Path) -> Iterator[list[LlamaEngine]]:
    """The real servers, ready."""
    with contextlib.ExitStack() as stack:
        found = [
            stack.enter_context(LlamaEngine(f"llama-{number}", context, slots, folder))
            for number, (context, slots) in enumerate(REAL)
        ]
        for engine in found:
            engine.wait_ready()
        yield found


@contextlib.contextmanager
def system(name: str, servers: Sequence[Engine] | Sequence[LlamaEngine], folder: Path) -> Iterator[str]:
    """The address of one system before the servers."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if name == "tokenweir":
            yield _tokenweir(servers, folder, stack)
        elif name == "nginx least_conn":
            port = ports.free_ports(1)[0]
            members = " ".join(["least_conn;", *(f"server 127.0.0.1:{engine.port};" for engine in servers)])
            text = CONFIGURATION % {"workers": 1, "servers": members, "port": port}
            stack.enter_context(nginx.Nginx("nginx", nginx.write(folder, text), port))
            yield f"http://127.0.0.1:{port}"
        else:
            peer = next(peer for peer in PEERS if peer.name == name)
            router = stack.enter_context(
                PeerRouter(peer, [engine.url for engine in servers], folder, POLICIES[name])
            )
            yield f"http://127.0.0.1:{router.port}"


def _members(servers: Sequence[Engine] | Sequence[LlamaEngine]) -> dict[str, Any]:
    """What a user would write of these servers."""
    backends: list[dict[str, Any]] = []
    known: dict[str, Any] = {"name": MODEL, "facts": MODEL}
    for number, server in enumerate(servers):
        if isinstance(server, LlamaEngine):
            known = {"name": SMALL_MODEL}
            # With one memory for all slots the engine does not tell how large it is; the operator does.
            told = {"models": [SMALL_MODEL], "kv_capacity": REAL[number][0]}
            backends.append({"id": server.name, "url": server.url, **told})
        elif isinstance(server, Engine):
            gpu = KINDS[number].gpu
            backends.append({"id": server.name, "url": server.url, "models": [MODEL], "gpu": gpu})
    return {"models": [known], "backends": backends}


def _tokenweir(
    servers: Sequence[Engine] | Sequence[LlamaEngine], folder: Path, stack: contextlib.ExitStack
) -> str:
    redis = stack.enter_context(Redis(folder / "redis"))
    configuration = gateway.write_configuration(
        folder,
        {
            "listen": {"workers": 1},
            "admin": {"port": ports.free_ports(1)[0]},
            "redis": {"port": redis.port},
            "state_dir": str(folder / "state"),
            **_members(servers),
        },
    )
    stack.enter_context(Sidecar(configuration, folder))
    server = stack.enter_context(gateway.Gateway(configuration, folder))
    server.wait_ready()
    return f"http://127.0.0.1:{server.port}"
