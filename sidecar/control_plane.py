"""The sidecar as a whole: its parts, and the loops that drive them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from sidecar import pending, tasks
from sidecar import settings as documents
from sidecar.actuators import Actuator
from sidecar.actuators.registry import Actuators
from sidecar.backend_files import BackendFiles, Read
from sidecar.clock import monotonic_ms, wall_ms
from sidecar.completions import Completions
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.control.loop import ControlLoop
from sidecar.exchange import Exchange
from sidecar.identity import sidecar_id
from sidecar.leader import Leader, NotLeaderError
from sidecar.learning.deviation import FLEET, MINUTE_MS
from sidecar.learning.retraining import Retraining
from sidecar.operations import Hands, Operations
from sidecar.origins import Origins
from sidecar.publish import Decision, Publisher
from sidecar.redis_access import RedisError, connect
from sidecar.resolve import Lookup, Resolver, system_lookup
from sidecar.store import Store
from sidecar.telemetry.collector import FIRST_LOOK_MS, Collector
from sidecar.telemetry.health import Look
from sidecar.telemetry.http import FetchError, Origin
from sidecar.telemetry.readings import XidEvent
from sidecar.telemetry.watch import Watch, Where
from tokenweir import backend_keys
from tokenweir.config import Config, load
from tokenweir.config.models import BackendConfig
from tokenweir.contract import names
from tokenweir.contract.records import Completion, Outcome, QueueLimits, State
from tokenweir.render import Paths

log = structlog.get_logger(__name__)

FOLLOW_MS: Final = 250
"""How often leases and the other sidecars' changes are read, and a follower asks for the lead."""
COMPLETIONS_MS: Final = 200
COALESCE_MS: Final = 20
"""Changes of state that come together are published together."""
AGAIN_MS: Final = 100
"""After an engine that served refuses a connection it is looked at again so soon."""
MEMORY_EVERY_MS: Final = 2000
"""How often the decisions' memory is stored when nothing changed; ramps grow all the time."""

TRAINING_MS: Final = 5000
"""How often it is looked at whether a training is due."""
FILES_MS: Final = 1000
"""How often the files that backends name are looked at."""


class ControlPlane:
    """One sidecar. `start` and `stop` it inside an event loop."""

    def __init__(
        self, path: Path, environment: Mapping[str, str] | None = None, lookup: Lookup = system_lookup
    ):
        self.path = path.resolve()
        self.folder = self.path.parent
        self._environment = environment
        self._started_with = base = load(self.path, environment)
        self.state_dir = self.folder / base.state_dir
        self.id = sidecar_id()
        self.store = Store(base, self.folder, self.state_dir, self._edited_ms())
        self.config: Config = self.store.config()
        gateway = Paths.under(self.state_dir)
        self._keys_file = gateway.backend_keys
        self.files = BackendFiles(self.folder, self.folder / base.admin.files_dir, gateway.ca_bundle)
        self.gateways = Gateways()
        self.fleet = Fleet(self.gateways)
        self.resolver = Resolver(self._addresses_changed, lookup)
        self.actuators = Actuators(self.folder, self.state_dir, base.actuators)
        self.collector = Collector(base.telemetry, self._seen, self._xid, self.folder)
        self.client = connect(base.redis, self.folder)
        self.leader = Leader(self.client, self.id)
        self.publisher = Publisher(self.client, self.leader)
        self.exchange = Exchange(
            self.client,
            self.leader,
            self.gateways,
            self.store,
            changed=self.apply,
            leases_read=self._leases_read,
        )
        self.completions = Completions(
            self.client, self.leader, self._known_backends, self._completed, self.state_dir
        )
        self.loop = ControlLoop(self.fleet, self.gateways, self.can_act, self._mean_output)
        self.operations = Operations(
            self.fleet,
            self.loop,
            Hands(self._actuator, self._origin, lambda: self.config, self.publish_soon),
        )
        self.retraining = Retraining(self.path)
        self.redis_error: str | None = "not asked yet"
        """Why Redis does not answer; None while it does."""
        self.redis_errors = 0
        self.started_at = monotonic_ms()
        self._read = Read()
        self._origins = Origins(self.folder)
        self._unseen: set[str] = set()
        self._memory_fence = 0
        """The term of leadership for which the decisions' memory was read."""
        self._memory_at = float("-inf")
        self._memory_due = True
        self._change = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # Life

    async def start(self) -> None:
        """Begin to watch, to campaign and to publish."""
        await self.collector.open()
        self.publisher.set_settings(documents.build(self.config, self.folder))
        self.apply()
        loops: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (
            self.resolver.run,
            self._publish_for_ever,
            self._follow_for_ever,
            self._read_for_ever,
            self._look_at_files_for_ever,
            self._train_for_ever,
        )
        self._tasks = [asyncio.create_task(loop(), name=loop.__name__) for loop in loops]
        for task in self._tasks:
            task.add_done_callback(_report)
        log.info("sidecar_started", id=self.id, backends=len(self.fleet.members), config=str(self.path))

    async def stop(self) -> None:
        """Stop cleanly: store what was learned and give the lease up, so that another takes over at once."""
        await tasks.cancel(self._tasks)
        await self.operations.close()
        await self.collector.close()
        await self.actuators.close()
        try:
            if self.leader.leading:
                await self.completions.checkpoint()
            await self.leader.release()
        except (RedisError, NotLeaderError, OSError) as error:
            log.warning("lease_not_given_up", reason=str(error))
        await self.retraining.stop()
        await self.completions.recording.flush(self.config.predictor.keep)
        self.completions.save()
        await self.client.aclose()
        log.info("sidecar_stopped", id=self.id)

    # Configuration

    def reload(self) -> None:
        """Read `tokenweir.yaml` again. Raises ConfigError, or OSError where the changes that it ends cannot
        be written; what held before then goes on."""
        edited_ms = self._edited_ms()
        config = load(self.path, self._environment)
        document = documents.build(config, self.folder)
        self.store.rebase(config, edited_ms)
        self.publisher.set_settings(document)
        self.apply()
        log.info("configuration_read", backends=len(self.config.backends))

    def _edited_ms(self) -> int:
        try:
            return self.path.stat().st_mtime_ns // 1_000_000
        except OSError:
            return 0  # reading it will tell

    def pending(self) -> list[str]:
        """Keys whose present value takes effect at the next start only."""
        return pending.keys(self._started_with, self.store.base)

    def changed(self) -> None:
        """The store was changed here: put it into effect and tell the other sidecars."""
        self.exchange.tell()
        self.apply()

    def check(self, backend: BackendConfig) -> None:
        """Raises ConfigError where a file that the backend's configuration names cannot be used."""
        self.files.check(backend, self.store.written(backend.id))

    def apply(self) -> None:
        """Bring every part in line with the configuration and the changes over it. What may be wrong with
        one backend puts that one out of rotation."""
        self.config = config = self.store.config()
        self.actuators.set_backends(config.backends, config.actuators)
        self.fleet.set_models(config.models)
        self._read_files()
        self.fleet.set_members(config.backends, self.store.draining())
        self._sync_watches()
        self.publish_soon()

    def _read_files(self) -> None:
        before, self._read = self._read, self.files.read(self.config.backends, self.store.base.backends)
        for backend_id, problem in self._read.problems.items():
            if before.problems.get(backend_id) != problem:
                log.error("backend_files_unusable", backend=backend_id, problem=problem)
        self._origins.forget()
        try:
            backend_keys.write(self._keys_file, self._read.keys)
        except OSError as error:
            log.error("backend_keys_not_written", file=str(self._keys_file), reason=str(error))

    def _sync_watches(self) -> None:
        members = self.fleet.members
        self.resolver.keep({member.config.host for member in members.values()})
        self._origins.keep(set(members))
        before = dict(self.collector.watches)
        self.collector.set_backends(
            {backend_id: (member.config, self._where(backend_id)) for backend_id, member in members.items()}
        )
        for backend_id, watch in self.collector.watches.items():
            members[backend_id].record = watch.record
            members[backend_id].address = self.resolver.address(watch.config.host)
            if before.get(backend_id) is not watch:
                self._unseen.add(backend_id)
        self._unseen &= set(members)

    def _where(self, backend_id: str) -> Where:
        def where() -> Origin | None:
            member = self.fleet.members.get(backend_id)
            if member is None or member.address is None:
                return None
            problem = self._read.problems.get(backend_id)
            if problem is not None:
                raise FetchError(Look.ERROR, problem)
            key = self._read.keys.get(member.config.api_key_file or "")
            return self._origins.of(member.config, member.address, key)

        return where

    # What happens

    def publish_soon(self) -> None:
        """Have a snapshot published at once instead of at the next tick."""
        self._change.set()

    def _seen(self, watch: Watch, look: Look, text: str) -> None:
        backend_id = watch.config.id
        self._unseen.discard(backend_id)
        if look in {Look.REFUSED, Look.LATE}:
            self.resolver.suspect(watch.config.host)
        member = self.fleet.members.get(backend_id)
        if look is Look.REFUSED and member is not None and member.readiness.state is State.READY:
            asyncio.get_running_loop().call_later(AGAIN_MS / 1000, watch.hurry)
        if self.fleet.observe(backend_id, look, text, monotonic_ms()):
            member = self.fleet.members[backend_id]
            reason = member.reason
            log.info("backend_state", backend=backend_id, state=member.state.value, reason=reason)
            self.publish_soon()

    def _xid(self, backend_id: str, event: XidEvent) -> None:
        log.error("xid_error", backend=backend_id, xid=event.code, card=event.card, index=event.index)
        self.publish_soon()

    def _addresses_changed(self) -> None:
        for member in self.fleet.members.values():
            member.address = self.resolver.address(member.config.host)
        for watch in self.collector.watches.values():
            if watch.record.answered_at is None:
                watch.hurry()
        self.publish_soon()

    def _leases_read(self) -> None:
        if self.loop.leases_read(self.config, monotonic_ms()):
            self.publish_soon()

    def _completed(self, record: Completion, at: float) -> None:
        if record.outcome is Outcome.OK:
            self.fleet.served(record.backend, at)
        if self.loop.completed(record, at, monotonic_ms()):
            self.publish_soon()

    def _mean_output(self, model: str) -> float | None:
        stats = self.completions.figures.published().get(model)
        return None if stats is None else stats.mean

    def _actuator(self, backend_id: str) -> Actuator | None:
        return self.actuators.of(backend_id)

    def can_act(self, backend_id: str) -> bool:
        """Whether a backend has an actuator."""
        return self._actuator(backend_id) is not None

    def _origin(self, backend_id: str) -> Origin | None:
        return self._where(backend_id)()

    def _known_backends(self) -> Mapping[str, Any]:
        return self.fleet.members

    # Loops

    async def _publish_for_ever(self) -> None:
        while True:
            try:
                # However rarely backends are looked at, publishing is what prolongs the lease.
                interval = min(self.config.telemetry.interval, names.SNAPSHOT_EVERY_MS)
                if not self.leader.leading:
                    interval = min(interval, FOLLOW_MS)
                await asyncio.wait_for(self._change.wait(), interval / 1000)
                await asyncio.sleep(COALESCE_MS / 1000)
            except TimeoutError:
                pass
            self._change.clear()
            try:
                await self._publish()
            except NotLeaderError:
                self.publish_soon()
                await asyncio.sleep(COALESCE_MS / 1000)
            except (RedisError, OSError) as error:
                self._redis_failed(error)
            except Exception:
                log.exception("publish_failed")

    async def _publish(self) -> None:
        if not self.leader.leading and not await self.leader.campaign():
            self.loop.step(self.config, False, monotonic_ms())
            self._redis_answered()
            return
        if self._warming_up():
            await self.leader.campaign()
            return
        if self.fleet.sweep():
            self._sync_watches()
        if self.leader.fence != self._memory_fence:
            await self._take_over()
        config, now = self.config, monotonic_ms()
        changed, orders = self.loop.step(config, True, now)
        self.operations.carry_out(orders)
        memory = self._memory(changed, now)
        decision = Decision(
            config.served_policy,
            config.shadow_policy,
            self.loop.thresholds(config, now),
            _queue(config),
            config.burst.max_tokens,
            self.loop.published(),
            memory,
        )
        await self.publisher.publish(self.fleet.decide(now), decision)
        if memory is not None:
            self._memory_at, self._memory_due = now, False
        self._redis_answered()

    async def _take_over(self) -> None:
        """Go on from what the leader before remembered."""
        stored = await self.client.get(names.CONTROL)
        self._memory_fence = self.leader.fence
        if stored is None:
            return
        try:
            state = json.loads(stored)
            if state["schema"] != names.SCHEMA:
                raise ValueError(f"schema {state['schema']}")
            if state["sidecar"] != self.id:
                self.loop.restore(state, monotonic_ms())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.error("control_memory_refused", reason=str(error)[:200])

    def _memory(self, changed: bool, now: float) -> str | None:
        """The decisions' memory as it is to be stored; None while what is stored will do."""
        self._memory_due = self._memory_due or changed
        if not self._memory_due and now - self._memory_at < MEMORY_EVERY_MS:
            return None
        return json.dumps(
            {"schema": names.SCHEMA, "sidecar": self.id, **self.loop.dump(now)}, separators=(",", ":")
        )

    def _warming_up(self) -> bool:
        """Whether backends are still to be looked at for the first time since the start: a snapshot that
        calls them all "starting" would take them out of rotation."""
        limit = self.config.telemetry.timeout + FIRST_LOOK_MS
        return (
            bool(self._unseen) and self.publisher.published == 0 and monotonic_ms() - self.started_at < limit
        )

    async def _follow_for_ever(self) -> None:
        while True:
            try:
                await self.exchange.step()
                self._redis_answered()
            except (RedisError, OSError) as error:
                self.gateways.lost()
                self._redis_failed(error)
            except Exception:
                log.exception("follow_failed")
            await asyncio.sleep(FOLLOW_MS / 1000)

    async def _read_for_ever(self) -> None:
        while True:
            more = False
            try:
                if self.leader.leading and self.publisher.published:
                    missing, self.publisher.stats_missing = self.publisher.stats_missing, False
                    more = await self.completions.step(missing)
            except NotLeaderError:
                self.publish_soon()
            except (RedisError, OSError) as error:
                self._redis_failed(error)
            except Exception:
                log.exception("completions_failed")
            await asyncio.sleep(0 if more else COMPLETIONS_MS / 1000)

    async def _train_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TRAINING_MS / 1000)
            try:
                settings = self.config.predictor
                await self.completions.recording.step(settings.keep)
                now = wall_ms()
                fleet = self.completions.deviation.figures(now).get(FLEET)
                if fleet is not None:
                    self.retraining.observe(now // MINUTE_MS - 1, fleet.deviation)
                if self.leader.leading and settings.enabled:
                    in_service = await self.client.exists(names.PREDICTOR_CURRENT) > 0
                    self.retraining.step(settings.retrain, in_service)
            except (RedisError, OSError) as error:
                self._redis_failed(error)
            except Exception:
                log.exception("training_failed")

    async def _look_at_files_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FILES_MS / 1000)
            try:
                if self.files.changed():
                    log.info("backend_files_read")
                    self._read_files()
                    for watch in self.collector.watches.values():
                        watch.hurry()
            except Exception:
                log.exception("backend_files_failed")

    def _redis_failed(self, error: Exception) -> None:
        self.redis_errors += 1
        text = str(error) or type(error).__name__
        if self.redis_error is None or self.redis_error == "not asked yet":
            log.warning("redis_away", reason=text)
        self.redis_error = text

    def _redis_answered(self) -> None:
        if self.redis_error not in {None, "not asked yet"}:
            log.info("redis_back")
        self.redis_error = None


def _queue(config: Config) -> QueueLimits:
    queue = config.queue
    return QueueLimits(max_waiting=queue.max_waiting, max_wait_ms=queue.max_wait, max_bytes=queue.max_bytes)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("loop_ended", loop=task.get_name(), exc_info=task.exception())
