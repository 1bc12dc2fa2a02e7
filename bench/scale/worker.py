"""The gateway's part: a real nginx worker that follows a snapshot renewed every 500 ms."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import redis

from bench.scale import fleet as fleets
from bench.servers import gateway, ports
from bench.servers.redis import Redis
from tokenweir.contract import names
from tokenweir.contract.records import Backend, ModelSettings, ModelStats, Settings, Stats

HERE = Path(__file__).resolve().parent


def _with_probe(text: str) -> str:
    """The rendered nginx.conf with the probe beside its metrics."""
    changes = {
        "init_by_lua_block { ": f'init_by_lua_block {{ package.path = "{HERE}/?.lua;" .. package.path; ',
        "location = /metrics {": "location ~ ^/probe/(?<probe>[a-z]+)$ "
        '{ content_by_lua_block { require("probe")[ngx.var.probe]() } }\n        location = /metrics {',
    }
    for before, after in changes.items():
        if text.count(before) != 1:
            raise RuntimeError(f"nginx.conf has {text.count(before)} times {before!r}")
        text = text.replace(before, after)
    return text


class Publisher:
    """Publishes the fleet every 500 ms, as a leader does, from a thread of its own."""

    def __init__(self, port: int, fleet: list[Backend]) -> None:
        self._client = redis.Redis(port=port)
        self._fleet = fleet
        self._sequence = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.bytes = 0

    def begin(self) -> None:
        """Settings and statistics once, snapshots from now on."""
        settings = Settings(version=1, models=[ModelSettings(name=fleets.MODEL)])
        stats = Stats(version=1, models={fleets.MODEL: ModelStats(mean=200, median=100, spread=1)})
        self._client.mset({names.SETTINGS: settings.dump(), names.STATS: stats.dump()})
        self.publish()
        self._thread.start()

    def publish(self) -> None:
        """One snapshot."""
        self._sequence += 1
        text = fleets.snapshot(self._fleet, self._sequence).dump()
        self.bytes = len(text)
        self._client.set(names.SNAPSHOT, text)

    def end(self) -> None:
        """No more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(names.SNAPSHOT_EVERY_MS / 1000):
            self.publish()


@contextmanager
def running(folder: Path, fleet: list[Backend]) -> Iterator[tuple[gateway.Gateway, Publisher]]:
    """A gateway of one worker that has the fleet."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Redis(folder / "redis"))
        configuration = gateway.write_configuration(
            folder,
            {
                "listen": {"workers": 1},
                "admin": {"port": ports.free_ports(1)[0]},
                "redis": {"port": store.port},
                "gateway_id": "bench",
                "state_dir": str(folder / "state"),
            },
        )
        publisher = Publisher(store.port, fleet)
        publisher.begin()
        stack.callback(publisher.end)
        server = stack.enter_context(gateway.Gateway(configuration, folder, edit=_with_probe))
        server.wait_ready()
        yield server, publisher


def ask(server: gateway.Gateway, probe: str, **arguments: int) -> dict[str, Any]:
    """What the probe of that name answers."""
    return asyncio.run(_ask(server, probe, arguments))


async def _ask(server: gateway.Gateway, probe: str, arguments: dict[str, int]) -> dict[str, Any]:
    url = f"http://127.0.0.1:{server.metrics_port}/probe/{probe}"
    async with aiohttp.ClientSession() as http, http.get(url, params=arguments) as answer:
        if answer.status != 200:
            raise RuntimeError(f"{probe} answers {answer.status}: {server.error_log()[-2000:]}")
        found: dict[str, Any] = await answer.json()
    return found


def measure(server: gateway.Gateway, quick: bool) -> dict[str, Any]:
    """All of the gateway's figures: CPU time, but for `late`, which is by the clock."""
    count = 5_000 if quick else 50_000
    ask(server, "picks", count=count, load=1000)
    idle = ask(server, "picks", count=count, load=0)
    loaded = ask(server, "picks", count=count, load=4000)
    stalls = ask(server, "stalls", seconds=5 if quick else 20)
    applied = ask(server, "apply", count=10 if quick else 50)
    sessions = ask(server, "sessions", count=100_000)
    return {
        "pick_us_p50": loaded["p50"],
        "pick_us_p99": loaded["p99"],
        "pick_idle_us_p99": idle["p99"],
        "picks_without_a_place": loaded["refused"],
        "session_us_p50": sessions["p50"],
        "session_us_p99": sessions["p99"],
        "sessions_known": sessions["known"],
        "sessions_taken_for_known": sessions["strange"],
        "sessions_bytes": sessions["bytes"],
        "apply_ms_p50": applied["p50"] / 1000,
        "apply_ms_most": applied["most"] / 1000,
        "stall_ms_p99": stalls["p99"] / 1000,
        "stall_ms_most": stalls["most"] / 1000,
        "late_ms_p99": stalls["late"]["p99"] / 1000,
        "snapshots_while_stalls_were_taken": stalls["snapshots"],
    }
