"""The sidecar as a whole: its parts, and the loops that drive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from sidecar import pending, tasks
from sidecar import settings as documents
from sidecar.actuators import Actuator
from sidecar.actuators.registry import Actuators
from sidecar.backend_files import BackendFiles
from sidecar.backend_watches import BackendWatches
from sidecar.clock import monotonic_ms, wall_ms
from sidecar.completions import Completions
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.control.loop import ControlLoop
from sidecar.exchange import Exchange
from sidecar.identity import sidecar_id
from sidecar.leader import Leader, NotLeaderError
from sidecar.learning.deviation import FLEET
from sidecar.learning.kept_models import KeptModels
from sidecar.learning.loops import LearningLoops
from sidecar.learning.retraining import Retraining
from sidecar.learning.small_model import SmallModel
from sidecar.operations import Hands, Operations
from sidecar.publish import Publisher
from sidecar.redis_access import RedisError, connect
from sidecar.redis_state import RedisState
from sidecar.resolve import Lookup, Resolver, system_lookup
from sidecar.store import Store
from sidecar.telemetry.collector import FIRST_LOOK_MS, Collector
from sidecar.telemetry.health import Look
from sidecar.telemetry.indicators import Indicator, deviation
from sidecar.telemetry.readings import XidEvent
from sidecar.telemetry.watch import Watch
from sidecar.ticker import Surroundings, Ticker
from sidecar.transfer.port import End, TransferError
from sidecar.transfer.transfers import Transfers
from tokenweir.config import Config, load
from tokenweir.config.models import BackendConfig
from tokenweir.config.transfer import BackendTransferConfig
from tokenweir.contract.records import Completion, Outcome, State
from tokenweir.render import Paths

log = structlog.get_logger(__name__)

AGAIN_MS: Final = 100
"""After an engine that served refuses a connection it is looked at again so soon."""


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
        self.store = Store(base, self.path, self.state_dir, self._edited_ms())
        self.config: Config = self.store.config()
        self.redis = RedisState()
        self.gateways = Gateways()
        self.fleet = Fleet(self.gateways)
        self.resolver = Resolver(self._addresses_changed, lookup)
        self.actuators = Actuators(self.folder, self.state_dir, base.actuators)
        self.collector = Collector(base.telemetry, self._seen, self._xid, self.folder)
        gateway = Paths.under(self.state_dir)
        files = BackendFiles(self.folder, self.folder / base.admin.files_dir, gateway.ca_bundle)
        self.watches = BackendWatches(
            self.fleet,
            self.collector,
            self.resolver,
            files,
            keys_file=gateway.backend_keys,
            listed=lambda: (self.config.backends, self.store.base.backends),
        )
        self.client = connect(base.redis, self.folder)
        self.leader = Leader(self.client, self.id)
        self.publisher = Publisher(self.client, self.leader)
        self.exchange = Exchange(
            self.client,
            self.redis,
            self.leader,
            self.gateways,
            self.store,
            changed=self.apply,
            leases_read=self._leases_read,
        )
        self.completions = Completions(
            self.client, self.leader, self._known_backends, self._completed, self.state_dir
        )
        self.loop = ControlLoop(
            self.fleet, self.gateways, self.can_act, self._mean_output, self._prediction_deviations
        )
        self.operations = Operations(
            self.fleet,
            self.loop,
            Hands(
                self._actuator,
                self.watches.origin,
                lambda: self.config,
                self.publish_soon,
                lambda: self.leader.superseded,
            ),
        )
        self.ticker = Ticker(
            self.client,
            self.redis,
            self.leader,
            fleet=self.fleet,
            loop=self.loop,
            operations=self.operations,
            publisher=self.publisher,
            surroundings=Surroundings(lambda: self.config, self._warming_up, self.watches.sync),
        )
        self.retraining = Retraining(self.path)
        self.small_model = SmallModel(gateway.small_model_socket, self.state_dir)
        self.learning = LearningLoops(
            self.redis,
            self.leader,
            completions=self.completions,
            publisher=self.publisher,
            retraining=self.retraining,
            small_model=self.small_model,
            models=KeptModels(self.client, self.state_dir),
            settings=lambda: self.config.predictor,
            lost_lead=self.publish_soon,
        )
        self.transfers = Transfers(gateway.transfer_socket, self.folder, self._transfer_end)
        self.started_at = monotonic_ms()
        self._tasks: list[asyncio.Task[None]] = []

    # Life

    async def start(self) -> None:
        """Begin to watch, to campaign and to publish."""
        await self.collector.open()
        self.publisher.set_settings(documents.build(self.config, self.folder))
        self.apply()
        loops: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (
            self.resolver.run,
            self.ticker.run,
            self.exchange.run,
            self.learning.read,
            self.watches.run,
            self.learning.train,
            self.transfers.run,
        )
        self._tasks = [asyncio.create_task(loop(), name=loop.__qualname__) for loop in loops]
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
        await self.small_model.stop()
        await self.transfers.stop()
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
        self.watches.files.check(backend, self.store.written(backend.id))

    def apply(self) -> None:
        """Bring every part in line with the configuration and the changes over it. What may be wrong with
        one backend puts that one out of rotation."""
        self.config = config = self.store.config()
        self.actuators.set_backends(config.backends, config.actuators)
        self.fleet.set_models(config.models)
        self.fleet.transfer = config.sessions.transfer
        self.transfers.follow(config.sessions.transfer)
        self.watches.read_files()
        self.fleet.set_members(config.backends, self.store.draining())
        self.watches.sync()
        self.publish_soon()

    # What happens

    def publish_soon(self) -> None:
        """Have a snapshot published at once instead of at the next tick."""
        self.ticker.soon()

    def _seen(self, watch: Watch, look: Look, text: str) -> None:
        backend_id = watch.config.id
        self.watches.unseen.discard(backend_id)
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
        self.watches.addresses_changed()
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

    def _prediction_deviations(self) -> dict[str, Indicator]:
        figures = self.completions.deviation.figures(wall_ms())
        return {
            model: deviation(one.deviation, one.answers) for model, one in figures.items() if model != FLEET
        }

    def _actuator(self, backend_id: str) -> Actuator | None:
        return self.actuators.of(backend_id)

    def _transfer_end(self, backend_id: str) -> End:
        member, origin = self.fleet.members.get(backend_id), self.watches.origin(backend_id)
        if member is None or origin is None:
            raise TransferError(f"no backend {backend_id!r} with an address")
        return End(backend_id, origin, member.config.transfer or BackendTransferConfig())

    def can_act(self, backend_id: str) -> bool:
        """Whether a backend has an actuator."""
        return self._actuator(backend_id) is not None

    def _known_backends(self) -> Mapping[str, Any]:
        return self.fleet.members

    def _warming_up(self) -> bool:
        limit = self.config.telemetry.timeout + FIRST_LOOK_MS
        return (
            bool(self.watches.unseen)
            and self.publisher.published == 0
            and monotonic_ms() - self.started_at < limit
        )


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("loop_ended", loop=task.get_name(), exc_info=task.exception())
