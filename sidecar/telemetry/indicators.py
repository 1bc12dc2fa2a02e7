"""Three figures of an engine's health, each with a limit: fragmentation of its KV memory, the time from
preemption to resumption, and how far outputs are from what was predicted. An engine that does not tell what
one is made of has it "not measured", and the reason in words; nothing is estimated in its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sidecar.telemetry.readings import EngineReading

FRAGMENTATION_LIMIT: Final = 0.15
CONTEXT_SWITCH_LIMIT_MS: Final = 50.0
DEVIATION_LIMIT: Final = 0.20
LEAST_ANSWERS: Final = 20
"""Answers of a minute from which their deviation counts: that of a few is chance."""

READINGS: Final = 20
"""Readings whose median is the fragmentation."""
LEAST_TOKENS: Final = 256
"""Tokens handed out from which fragmentation is measured: of a few blocks the last ones are most."""
WINDOW_MS: Final = 60_000
"""Span in which preemptions are looked at."""
GAPS_EVERY_MS: Final = 5_000
IDLE_BELIEVED_MS: Final = 600_000
"""How long after an idle moment the counters are believed to tell what is held: aborts that an engine does
not count let them drift."""


@dataclass(frozen=True, slots=True)
class Indicator:
    """A figure with its limit."""

    value: float | None
    limit: float
    unit: str
    """`share` or `ms`."""
    text: str
    """What the value is made of, or why there is none."""

    @property
    def alert(self) -> bool:
        """Whether the limit is exceeded; what is not measured raises no alert."""
        return self.value is not None and self.value > self.limit


class Fragmentation:
    """Share of the KV memory handed out that holds no token."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=READINGS)
        self._start: float | None = None
        self._start_at = float("-inf")
        self._before: EngineReading | None = None
        self._told = False
        self._source = ""

    def observe(self, reading: EngineReading) -> None:
        """Take a reading."""
        self._source = reading.source
        held = reading.held_tokens if reading.held_tokens is not None else self._derived(reading)
        self._before = reading
        self._told = held is not None
        reserved = reading.reserved_tokens
        if held is None or reserved is None or reserved < LEAST_TOKENS or not reading.running:
            return
        # Sequences that share cached blocks hold more than is handed out: nothing of it is wasted.
        self._shares.append(min(max(1 - held / reserved, 0.0), 1.0))

    def now(self) -> Indicator:
        """The figure."""
        if self._shares:
            text = f"median of the last {len(self._shares)} readings of {self._source}"
            return Indicator(median(self._shares), FRAGMENTATION_LIMIT, "share", text)
        if self._told:
            text = "not measured: too little is held"
        elif self._before is not None and _ends(self._before) is not None:
            text = "not measured: it shows after a moment without requests"
        else:
            text = "not measured: the engine does not tell what its sequences hold"
        return Indicator(None, FRAGMENTATION_LIMIT, "share", text)

    def _derived(self, reading: EngineReading) -> float | None:
        """Tokens held by the counters alone: those that went in and came out, less those of the requests
        that ended, less what that difference was when nothing ran. A request that was aborted has not
        ended in every engine's histograms: after one the next idle moment is waited for."""
        ended = _ends(reading)
        if ended is None or reading.prompt_tokens is None or reading.output_tokens is None:
            return None
        difference = reading.prompt_tokens + reading.output_tokens - ended
        before = self._before
        if reading.load == 0:
            self._start, self._start_at = difference, reading.at
        elif (
            reading.at - self._start_at > IDLE_BELIEVED_MS
            or before is None
            or (before.aborted or 0) != (reading.aborted or 0)
            or (before.output_tokens or 0) > reading.output_tokens
        ):
            self._start = None
        return None if self._start is None else difference - self._start


class ContextSwitch:
    """Time from preemption to resumption. A request that was preempted shows as a gap between two of its
    tokens, so of p preemptions the p longest gaps of that time are taken, each at its bucket's lower bound:
    the true time is no less."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float, Mapping[float, float]]] = deque()
        self._told = False

    def due(self, reading: EngineReading) -> bool:
        """Whether the buckets are to be read with this reading."""
        if reading.preemptions is None or reading.inter_token is None:
            return False
        return not self._seen or reading.at - self._seen[-1][0] >= GAPS_EVERY_MS

    def observe(self, reading: EngineReading, gaps: Mapping[float, float] | None) -> None:
        """Take the buckets: upper bound in seconds -> observations up to it."""
        if gaps is None or reading.preemptions is None:
            return
        self._told = True
        if self._seen and reading.preemptions < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((reading.at, reading.preemptions, gaps))
        while len(self._seen) > 2 and reading.at - self._seen[1][0] >= WINDOW_MS:
            self._seen.popleft()

    def now(self) -> Indicator:
        """The figure."""
        limit = CONTEXT_SWITCH_LIMIT_MS
        if not self._told:
            text = "not measured: the engine does not tell preemptions and the gaps between tokens"
            return Indicator(None, limit, "ms", text)
        first, last = self._seen[0], self._seen[-1]
        preemptions = int(last[1] - first[1])
        span = (last[0] - first[0]) / 1000
        if preemptions <= 0:
            return Indicator(None, limit, "ms", f"not measured: no preemption in the last {span:.0f} s")
        longest = _longest(first[2], last[2], preemptions)
        if not longest:
            text = f"not measured: {preemptions} preemptions in {span:.0f} s, none resumed yet"
            return Indicator(None, limit, "ms", text)
        text = f"at least, mean of {preemptions} preemptions in the last {span:.0f} s"
        return Indicator(1000 * sum(longest) / len(longest), limit, "ms", text)


def deviation(value: float | None, answers: int) -> Indicator:
    """How far the sum of the predicted outputs of the last whole minute is from that of the measured ones:
    what memory and time are planned by. Single requests differ more; that is the predictor's bench.
    `answers`: how many these are."""
    if value is None:
        return Indicator(None, DEVIATION_LIMIT, "share", "not measured: no request ended in the last minute")
    if answers < LEAST_ANSWERS:
        text = f"not measured: the last whole minute had {answers} answers, and {LEAST_ANSWERS} are wanted"
        return Indicator(None, DEVIATION_LIMIT, "share", text)
    text = "of the outputs predicted in the last whole minute, against those measured"
    return Indicator(value, DEVIATION_LIMIT, "share", text)


class Indicators:
    """Those of one backend."""

    def __init__(self) -> None:
        self.fragmentation = Fragmentation()
        self.context_switch = ContextSwitch()

    def now(self) -> dict[str, Indicator]:
        """By name."""
        return {
            "fragmentation": self.fragmentation.now(),
            "context_switch": self.context_switch.now(),
        }


def _ends(reading: EngineReading) -> float | None:
    """Tokens of the requests that ended."""
    if reading.prompt_lengths is None or reading.output_lengths is None:
        return None
    return reading.prompt_lengths.sum + reading.output_lengths.sum


def _longest(before: Mapping[float, float], after: Mapping[float, float], count: int) -> list[float]:
    """Lower bounds, in seconds, of the `count` longest observations between two states of the buckets."""
    bounds = sorted(after)
    found: list[float] = []
    for lower, upper in reversed(list(pairwise([0.0, *bounds]))):
        within = _within(after, lower, upper) - _within(before, lower, upper)
        found += [lower] * min(int(max(within, 0)), count - len(found))
        if len(found) >= count:
            break
    return found


def _within(buckets: Mapping[float, float], lower: float, upper: float) -> float:
    return buckets.get(upper, 0.0) - buckets.get(lower, 0.0)
