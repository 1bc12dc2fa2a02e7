"""Watches the containers of one Docker engine: its events as they come, and a comparison now and then, since
an event can be lost with a connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import docker
import structlog
from docker.errors import NotFound

from sidecar.actuators.actuator import ActuationError
from sidecar.actuators.docker_client import ERRORS, connect, explain, host_of
from sidecar.clock import monotonic_ms, wall_ms
from sidecar.telemetry.container import ContainerState
from sidecar.telemetry.readings import Record
from tokenweir.config.actuators import DockerConfig

log = structlog.get_logger(__name__)

NOTE: Final = "container"
COMPARE_S: Final = 10.0
TIMEOUT_S: Final = 10
AGAIN_S, AGAIN_MOST_S = 1.0, 30.0
LASTED_MS: Final = 60_000
"""A connection that held so long is sought again soon."""
ACTIONS: Final = ["start", "die", "oom", "kill", "pause", "unpause", "destroy", "rename"]
ENDED: Final[dict[str, Any]] = {"Action": "(ended)"}
"""Put after the last event of a stream."""
COMPARE: Final[dict[str, Any]] = {"Action": "(compare)"}
"""Put among the events to have the containers compared now."""

_pool = ThreadPoolExecutor(4, thread_name_prefix="containers")

Changed = Callable[[str], None]


@dataclass
class Contained:
    """A backend whose engine runs in a container."""

    record: Record
    container: str
    state: ContainerState = field(default_factory=ContainerState)
    inspected: bool = False
    """Since the connection was made: events tell the rest."""


class DockerWatch:
    """One Docker engine. `members` are the backends in its containers; `changed` is told whose container
    began or ended."""

    def __init__(self, config: DockerConfig, folder: Path, changed: Changed) -> None:
        self.name = host_of(config)
        self.members: dict[str, Contained] = {}
        self._config = config
        self._folder = folder
        self._changed = changed
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def set_members(self, wanted: Mapping[str, tuple[Record, str]]) -> None:
        """Watch exactly these: backend -> (record, container)."""
        for backend_id in set(self.members) - set(wanted):
            self.members.pop(backend_id).record.container = None
        for backend_id, (record, container) in wanted.items():
            known = self.members.get(backend_id)
            if known is None or known.record is not record or known.container != container:
                self.members[backend_id] = Contained(record, container)
                self._events.put_nowait(COMPARE)

    async def run(self, phase_ms: float = 0) -> None:
        """Watch for ever."""
        await asyncio.sleep(phase_ms / 1000)
        pause = AGAIN_S
        while True:
            began = monotonic_ms()
            try:
                await self._watch()
                problem = f"Docker at {self.name} ended the stream of events"
            except ActuationError as error:
                problem = str(error)
            except ERRORS as error:
                problem = explain(error, self.name)
            for member in self.members.values():
                member.record.notes[NOTE] = problem
            pause = AGAIN_S if monotonic_ms() - began > LASTED_MS else min(pause * 2, AGAIN_MOST_S)
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        """Until the connection ends. Raises ActuationError, or what the client raises."""
        client = await _in_thread(lambda: connect(self._config, self._folder, TIMEOUT_S))
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._events = events
        for member in self.members.values():
            member.inspected = False
        stream = None
        try:
            # The events first: what happens while the containers are compared is not missed.
            filters = {"type": "container", "event": ACTIONS}
            stream = await _in_thread(lambda: client.events(decode=True, filters=filters))
            _follow(stream, asyncio.get_running_loop(), events)
            compare_at = float("-inf")
            while True:
                if monotonic_ms() - compare_at >= COMPARE_S * 1000:
                    await self._look(client)
                    compare_at = monotonic_ms()
                left = compare_at / 1000 + COMPARE_S - monotonic_ms() / 1000
                try:
                    event = await asyncio.wait_for(events.get(), max(left, 0.01))
                except TimeoutError:
                    continue
                if event is ENDED:
                    return
                if event is COMPARE or self._take(event):
                    compare_at = float("-inf")
        finally:
            if stream is not None:
                with contextlib.suppress(*ERRORS):
                    stream.close()
            client.close()

    def _take(self, event: dict[str, Any]) -> bool:
        """An event of any container of the engine; whether an inspection tells more."""
        actor = event.get("Actor") or {}
        attributes = actor.get("Attributes") or {}
        action = str(event.get("Action", ""))
        if action == "rename":
            return any(self._again(member) for member in self.members.values())
        more = False
        for backend_id, member in self.members.items():
            if member.container != attributes.get("name") and not _is_id(member.container, actor.get("ID")):
                continue
            if member.state.happened(action, attributes, monotonic_ms()):
                member.record.container = member.state.reading
                self._changed(backend_id)
            if action in {"start", "die"}:
                more = self._again(member)
        return more

    def _again(self, member: Contained) -> bool:
        """Have a member inspected at the next comparison."""
        member.inspected = False
        return True

    async def _look(self, client: docker.DockerClient) -> None:
        """Inspect every container that the list shows in another state than is known, or that was not
        inspected yet; the others are as they were."""
        listed = await _in_thread(lambda: client.api.containers(all=True))
        states = {name.lstrip("/"): one["State"] for one in listed for name in one.get("Names") or []}
        for backend_id, member in list(self.members.items()):
            known = member.state.reading
            if known is not None and member.inspected and states.get(member.container) == known.state:
                member.state.reading = member.record.container = replace(known, at=monotonic_ms())
                continue
            try:
                attributes = await _in_thread(partial(client.api.inspect_container, member.container))
            except NotFound:
                reading = member.state.missing(monotonic_ms())
                member.record.notes[NOTE] = f"Docker at {self.name} has no container {member.container!r}"
            else:
                reading = member.state.inspected(attributes, monotonic_ms(), float(wall_ms()))
                member.inspected = True
                member.record.notes.pop(NOTE, None)
            member.record.container = reading
            if known is None or (known.state, known.ended_at) != (reading.state, reading.ended_at):
                self._changed(backend_id)


def _is_id(wanted: str, actual: Any) -> bool:
    return isinstance(actual, str) and len(wanted) >= 12 and actual.startswith(wanted)


def _follow(stream: Any, loop: asyncio.AbstractEventLoop, events: asyncio.Queue[dict[str, Any]]) -> None:
    """Read the stream in a thread of its own until it ends or is closed."""

    def put(event: dict[str, Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(events.put_nowait, event)

    def read() -> None:
        try:
            for event in stream:
                put(event)
        except Exception as error:  # the connection, however it ends
            log.debug("events_ended", reason=str(error))
        put(ENDED)

    Thread(target=read, name="docker-events", daemon=True).start()


async def _in_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(_pool, call)
