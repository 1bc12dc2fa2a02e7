"""Watches one backend: what to ask it and when.

A backend that answers is asked for its metrics every interval, for its health every `HEALTH_EVERY_MS`
unless its counters move, for its models every `MODELS_EVERY_MS`. One that does not is asked for its health
first, less and less often, and for all of it anew once it answers: another engine may have come up in its
place.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from sidecar.clock import monotonic_ms
from sidecar.telemetry import engines, health, models
from sidecar.telemetry.exposition import Page
from sidecar.telemetry.health import Look
from sidecar.telemetry.http import Answer, Fetcher, FetchError, Origin
from sidecar.telemetry.indicators import Indicators
from sidecar.telemetry.large_pages import PageTime
from sidecar.telemetry.plausible import plausible
from sidecar.telemetry.readings import ModelsReading, Record
from sidecar.telemetry.slots import to_slot
from tokenweir.config.models import BackendConfig

HEALTH_EVERY_MS: Final = 2000
MODELS_EVERY_MS: Final = 30_000
MISSING_EVERY_MS: Final = 30_000
"""How often a page that an engine lacks is looked for again."""
BACK_OFF_AFTER: Final = 3
"""Failed looks in a row from which the interval doubles each time, up to `BACK_OFF_MOST` times."""
BACK_OFF_MOST: Final = 8
JITTER: Final = 0.1

Where = Callable[[], Origin | None]
"""How the backend is reached; None where its name does not resolve. Raises FetchError where it cannot be
asked at all."""
Seen = Callable[["Watch", Look, str], Awaitable[None] | None]


class Watch:
    """One backend under observation. `record` holds what is known of it."""

    def __init__(
        self, config: BackendConfig, where: Where, fetcher: Fetcher, interval_ms: int, seen: Seen
    ) -> None:
        self.config = config
        self.record = Record(engine_kind="" if config.engine == "auto" else config.engine)
        self.interval_ms = interval_ms
        self._where = where
        self._fetcher = fetcher
        self._seen = seen
        self._settled = False
        self._late = False
        self._places: dict[str, int] = {}
        self._page_time = PageTime()
        self._health_at = self._models_at = self._metrics_missing_at = float("-inf")
        self._movement: tuple[float | None, ...] = ()
        self._wake = asyncio.Event()

    async def run(self, phase_ms: float = 0) -> None:
        """Look for ever; `phase_ms` after the start for the first time, so that many watches spread."""
        await asyncio.sleep(phase_ms / 1000)
        while True:
            started = monotonic_ms()
            look, text = await self.look()
            answer = self._seen(self, look, text) if look is not Look.BLIND else None
            if answer is not None:
                await answer
            spent = monotonic_ms() - started
            wait = max(self._delay_ms() - spent, 0.1 * self.interval_ms, self._page_time.rest_ms)
            wait = to_slot(monotonic_ms(), wait, self.interval_ms)
            self._wake.clear()
            # A bare timer: `wait_for` would make a task of each wait.
            timer = asyncio.get_running_loop().call_later(wait / 1000, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def hurry(self) -> None:
        """Look again now."""
        self._wake.set()

    def _delay_ms(self) -> float:
        excess = self.record.failures - BACK_OFF_AFTER
        factor = min(2**excess, BACK_OFF_MOST) if excess > 0 else 1
        return self.interval_ms * factor * random.uniform(1 - JITTER, 1 + JITTER)

    async def look(self) -> tuple[Look, str]:
        """Look once: how it went, and the reason in words. Updates the record, unless it went blind."""
        record = self.record
        try:
            origin = self._where()
            if origin is None:
                look, text = Look.REFUSED, f"the name {self.config.host} does not resolve"
            else:
                look, text = await (self._routine(origin) if self._settled else self._anew(origin))
        except FetchError as error:
            look, text = error.look, str(error)
        if look is Look.BLIND:
            return look, text
        self._late = look is Look.LATE
        if look is Look.OK:
            record.failures, record.failure = 0, ""
            record.answered_at = monotonic_ms()
            self._settled = True
        else:
            # A model that loads is no failure: it is looked at again at the usual pace.
            record.failures = 0 if look is Look.LOADING else record.failures + 1
            record.failure = text
            if look is not Look.LATE or record.failures > 1:
                self._settled = False
        return look, text

    async def _anew(self, origin: Origin) -> tuple[Look, str]:
        """Health, then models, then metrics: each only once the one before is well."""
        look, text = await self._health(origin)
        if look is not Look.OK:
            return look, text
        self._places.clear()
        self.record.indicators = Indicators()
        self._metrics_missing_at = float("-inf")
        if self.config.engine == "auto":
            self.record.engine_kind = ""
        look, text = await self._models(origin)
        if look is not Look.OK:
            return look, text
        return await self._metrics(origin)

    async def _routine(self, origin: Origin) -> tuple[Look, str]:
        """The usual look: the metrics, and what else is due."""
        now = monotonic_ms()
        metrics_due = now - self._metrics_missing_at >= MISSING_EVERY_MS
        due = []
        if metrics_due:
            due.append(self._metrics(origin))
        if not metrics_due or (now - self._health_at >= HEALTH_EVERY_MS and not self._moved()):
            due.append(self._health(origin))
        if now - self._models_at >= MODELS_EVERY_MS:
            due.append(self._models(origin))
        looks = [await due[0]] if len(due) == 1 else await asyncio.gather(*due)
        return next((bad for bad in looks if bad[0] is not Look.OK), (Look.OK, ""))

    def _moved(self) -> bool:
        """Whether the engine's counters have moved since this was asked last: one that works need not say
        that it is well, and at hundreds of engines that is a fifth of all looks."""
        engine = self.record.engine
        before, self._movement = self._movement, engine.movement if engine is not None else ()
        return bool(self._movement) and bool(before) and self._movement != before

    async def _health(self, origin: Origin) -> tuple[Look, str]:
        self._health_at = monotonic_ms()
        answer = await self._get(origin, health.PATH)
        if not self.record.engine_kind and self.config.engine == "auto":
            self.record.engine_kind = engines.by_server(answer.server) or ""
        look = health.read(answer.status)
        if look is Look.LOADING:
            return look, "/health answers 503: the model is loading"
        return look, "" if look is Look.OK else f"/health answers {answer.status}"

    async def _models(self, origin: Origin) -> tuple[Look, str]:
        self._models_at = now = monotonic_ms()
        record = self.record
        answer = await self._get(origin, models.PATH)
        needed = self.config.models is None
        if answer.status == 503:
            return Look.LOADING, f"{models.PATH} answers 503: the model is loading"
        if answer.status in {401, 403}:
            text = (
                f"{models.PATH} answers {answer.status}: it wants an API key, or another one (api_key_file)"
            )
            return Look.ERROR, text
        reading = ModelsReading(at=now, source=models.PATH)
        record.notes.pop("models", None)
        if answer.status == 200:
            try:
                reading = models.read(answer.body, now)
            except ValueError as error:
                record.notes["models"] = f"{models.PATH}: {error}"
        else:
            record.notes["models"] = f"{models.PATH} answers {answer.status}"
        if self.config.engine == "auto":
            record.engine_kind = engines.by_owner(reading.owner) or record.engine_kind
        reading = await self._information(origin, reading)
        if needed and not reading.names:
            reason = record.notes.get("models") or f"{models.PATH} lists no model"
            return Look.ERROR, f"{reason}; name them in `models` of this backend"
        record.models = reading
        return Look.OK, ""

    async def _information(self, origin: Origin, reading: ModelsReading) -> ModelsReading:
        """The engine's own page on its limits; that it has none is no failure."""
        kind = self.record.engine_kind
        path = models.INFORMATION.get(kind)
        if path is None:
            return reading
        try:
            answer = await self._get(origin, path)
            if answer.status == 200:
                reading = models.with_information(reading, kind, answer.body)
                self._note_slots(reading, kind)
                return reading
        except (FetchError, ValueError) as error:
            if isinstance(error, FetchError) and error.look is Look.BLIND:
                raise
            self.record.notes["information"] = f"{path}: {error}"
        return reading

    def _note_slots(self, reading: ModelsReading, kind: str) -> None:
        self.record.notes.pop("capacity", None)
        if kind == "llamacpp" and reading.context and (reading.slots or 1) > 1:
            self.record.notes["capacity"] = (
                f"{reading.slots} slots of {reading.context} tokens each; an engine with --kv-unified has "
                "that once for all of them, and does not tell: set `kv_capacity` there"
            )

    async def _metrics(self, origin: Origin) -> tuple[Look, str]:
        record = self.record
        try:
            answer = await self._metrics_page(origin)
        except FetchError as error:
            if self.config.metrics_url is None or error.look is Look.BLIND:
                raise
            # An exporter elsewhere may be gone while the engine is well: its health says so.
            return self._no_metrics(str(error))
        if answer.status == 503:
            return Look.LOADING, "/metrics answers 503: the model is loading"
        if answer.status >= 500 and answer.status != 501:
            return Look.ERROR, f"/metrics answers {answer.status}"
        if answer.status != 200:
            return self._no_metrics(f"/metrics answers {answer.status}")
        page = Page(answer.body, self._places)
        kind = record.engine_kind
        if kind not in engines.READERS and self.config.engine == "auto":
            record.engine_kind = kind = engines.by_page(page.body) or kind
        reader, now = engines.READERS.get(kind), monotonic_ms()
        try:
            reading = (
                await self._page_time.spend(len(page.body), partial(reader, page, now)) if reader else None
            )
        except (ValueError, ArithmeticError, RecursionError) as error:
            return self._no_metrics(f"/metrics cannot be read: {error}")
        if reading is None:
            return self._no_metrics(f"/metrics holds nothing of {kind or 'a known engine'}")
        reading, problem = plausible(reading)
        record.engine = reading
        record.indicators.fragmentation.observe(reading)
        if record.indicators.context_switch.due(reading):
            record.indicators.context_switch.observe(reading, self._gaps(page, kind))
        if problem:
            record.notes["metrics"] = problem
        else:
            record.notes.pop("metrics", None)
        return Look.OK, ""

    def _gaps(self, page: Page, kind: str) -> dict[float, float] | None:
        """Buckets of the times between two tokens, of an engine that tells them."""
        for name in engines.GAPS.get(kind, ()):
            found = page.buckets(name)
            if found is not None:
                return found
        return None

    async def _metrics_page(self, origin: Origin) -> Answer:
        url = self.config.metrics_url
        if url is None:
            path = engines.METRICS_PATHS.get(self.record.engine_kind, "/metrics")
            return await self._get(origin, path)
        try:
            parts = urlsplit(url)
            place = parts.hostname, parts.port
        except ValueError as error:
            raise FetchError(Look.ERROR, f"{url!r} is no URL: {error}") from None
        if place == (self.config.host, self.config.port):
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            return await self._get(origin, path)
        return await self._fetcher.get_url(url)

    async def _get(self, origin: Origin, path: str) -> Answer:
        """GET a page; after a late answer the next is awaited half as long, so that a frozen engine is out
        soon."""
        return await self._fetcher.get(origin, path, patience=0.5 if self._late else 1)

    def _no_metrics(self, text: str) -> tuple[Look, str]:
        """The engine is well but tells no load; it is asked again later."""
        self._metrics_missing_at = monotonic_ms()
        self.record.notes["metrics"] = text
        self.record.engine = None
        return Look.OK, ""
