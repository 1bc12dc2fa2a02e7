"""How long after a gateway has moved a session another one knows: two real gateways, a real Redis."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import redis

from bench.servers import gateway, nginx, ports
from bench.servers.gateway import Gateway
from bench.servers.redis import Redis
from tokenweir.contract import names
from tokenweir.contract.records import Backend, Cost, ModelSettings, Settings, Snapshot, State

MODEL: Final = "m"
PATIENCE_S: Final = 5.0
LOOK_S: Final = 0.01
BODY: Final = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
ANSWER: Final = '{"object":"chat.completion","choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}'
_CONFIGURATION = """
worker_processes 1;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
    default_type application/json;
    server { %s location / { return 200 '%s'; } }
}
"""


def _backend(number: int, port: int) -> Backend:
    # The first one is loaded, so whoever lives there moves.
    return Backend(
        id=f"engine-{number}",
        host="127.0.0.1",
        port=port,
        host_header=f"127.0.0.1:{port}",
        models={MODEL: MODEL},
        state=State.READY,
        engine="vllm",
        memory=0.95 if number == 0 else 0.1,
        capacity=100_000,
        cost=Cost(prefill=0.05, base=10, per_sequence=0.1, per_kv_token=1e-4),
    )


@contextmanager
def _published(url: str, backends: list[Backend]) -> Iterator[None]:
    """The documents of a sidecar, kept fresh."""
    client, done = redis.Redis.from_url(url), threading.Event()
    client.set(names.SETTINGS, Settings(version=1, models=[ModelSettings(name=MODEL)]).dump())

    def publish() -> None:
        sequence = 0
        while not done.is_set():
            sequence += 1
            now = int(time.time() * 1000)
            snapshot = Snapshot(fence=1, sequence=sequence, time_ms=now, backends=backends)
            client.set(names.SNAPSHOT, snapshot.dump())
            done.wait(names.SNAPSHOT_EVERY_MS / 1000)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _ask(at: Gateway, session: str) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{at.port}/v1/chat/completions",
        data=BODY,
        headers={"Content-Type": "application/json", "X-Session-ID": session},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        answer.read()


def _moved(at: Gateway) -> float:
    return at.metrics()["tokenweir_sessions_moved"]


def measure(folder: Path, moves: int) -> dict[str, Any]:
    """So many moves, one after the other: ms from the answer at one gateway until the other counts them."""
    engine_ports = ports.free_ports(2)
    listen = " ".join(f"listen 127.0.0.1:{port};" for port in engine_ports)
    with ExitStack() as stack:
        store = Redis(folder / "redis")
        stack.callback(store.stop)
        configuration = nginx.write(folder / "engines", _CONFIGURATION % (listen, ANSWER))
        engines = nginx.Nginx("engines", configuration, engine_ports[0])
        stack.callback(engines.stop)
        stack.enter_context(_published(store.url, [_backend(k, port) for k, port in enumerate(engine_ports)]))
        pair = []
        for name in ("one", "two"):
            text = {"redis": {"port": store.port}, "gateway_id": f"bench-{name}", "backends": []}
            path = gateway.write_configuration(folder / name, text)
            pair.append(Gateway(path, folder / name / "run", name))
            stack.callback(pair[-1].stop)
        for each in pair:
            each.wait_ready()
        times = _times(pair[0], pair[1], moves)
    times.sort()
    return {
        "case": {"part": "moves", "gateways": 2, "moves": moves},
        "move_visible_ms_p50": times[len(times) // 2],
        "move_visible_ms_max": times[-1],
    }


def _times(one: Gateway, other: Gateway, moves: int) -> list[float]:
    found: list[float] = []
    number, before = 0, _moved(one)
    while len(found) < moves:
        number += 1
        _ask(one, f"session-{number}")
        began = time.monotonic()
        if _moved(one) == before:
            continue
        before += 1
        while _moved(other) < before:
            if time.monotonic() - began > PATIENCE_S:
                raise RuntimeError(f"a move was not known after {PATIENCE_S:g} s")
            time.sleep(LOOK_S)
        found.append((time.monotonic() - began) * 1000)
        # Not in step with the polls.
        time.sleep(0.013 * (number % 7))
    return found
