"""The mean step of an engine between two looks at its counters: what the cost fit learns from."""

from __future__ import annotations

from typing import Final

from sidecar.control.cost_fit import Step
from sidecar.telemetry.readings import EngineReading, Total

SHORTEST_MS: Final = 100
LONGEST_MS: Final = 10_000
"""Looks further apart say nothing of what the engine held in between."""
LEAST_TOKENS: Final = 8
EXACT: Final = 0.04
"""Relative noise of a mean of the engine's own histogram ..."""
ROUGH: Final = 0.25
"""... and of one reckoned from the wall clock."""
SLOWEST_STEP_MS: Final = 60_000
FEW: Final = 2.0
"""Sequences in a step below which prompts may have been computed while nobody decoded: those show in no gap
between tokens, and would seem to have taken no time."""
QUIET: Final = 3.0
"""Requests in the batch up to which a prompt has the engine nearly for itself."""
MOST_FIRST: Final = 2
"""First tokens between two looks beyond which prompts were in each other's way."""
ARRIVAL: Final = 0.15
"""Relative noise of a time to first token: the step that was under way, the server before the engine."""


def mean_step(before: EngineReading, after: EngineReading, capacity: int | None) -> Step | None:
    """The mean step between two looks; None where they tell none (idle, restarted, counters missing)."""
    elapsed = after.at - before.at
    if not SHORTEST_MS <= elapsed <= LONGEST_MS:
        return None
    if restarted(before, after):
        return None
    kv = _held(before, after, capacity)
    running = _mean(before.running, after.running)
    gap = _difference(before.inter_token, after.inter_token)
    if gap is not None:
        if gap.count < LEAST_TOKENS:
            return None
        ms = gap.sum / gap.count
        steps = _difference(before.steps, after.steps)
        count = (
            steps.count if steps is not None and steps.count >= 1 else gap.count / max(running or 1.0, 1.0)
        )
        sequences = gap.count / count
        looked_up = _looked_up(before, after)
        prompts = 0.0
        if looked_up is not None:
            prompts = looked_up / count
        elif steps is not None:
            prompts = max(0.0, steps.sum - gap.count) / count
        if prompts > 0 and sequences < FEW:
            return None
        noise = EXACT
    else:
        found = _by_own_clock(before, after) or _by_wall_clock(before, after, elapsed)
        if found is None or not running:
            return None
        ms, prompts, noise = found
        sequences = max(running, 1.0)
    if not 0 < ms <= SLOWEST_STEP_MS or sequences <= 0:
        return None
    return Step(ms, sequences, kv, max(prompts, 0.0), noise)


def prompt_step(before: EngineReading, after: EngineReading, capacity: int | None) -> Step | None:
    """The step that computed a prompt, by the time to its first token, where it waited for nobody: nothing
    was queued, and the engine was nearly idle. None where that does not show."""
    if not SHORTEST_MS <= after.at - before.at <= LONGEST_MS or restarted(before, after):
        return None
    first = _difference(before.ttft, after.ttft)
    running = _mean(before.running, after.running)
    queued = (before.waiting or 0.0) + (after.waiting or 0.0)
    if first is None or running is None or not 1 <= first.count <= MOST_FIRST or queued or running > QUIET:
        return None
    if before.prompt_tokens is None or after.prompt_tokens is None:
        return None
    prompts = after.prompt_tokens - before.prompt_tokens
    computed = _looked_up(before, after)
    if computed is None:
        computed = prompts
    elif (after.prefix_queries or 0.0) - (before.prefix_queries or 0.0) != prompts:
        return None  # a prompt was begun before one look and done after
    ms = first.sum / first.count
    if computed <= 0 or not 0 < ms <= SLOWEST_STEP_MS:
        return None
    return Step(ms, max(running, 1.0), _held(before, after, capacity), computed / first.count, ARRIVAL)


def _looked_up(before: EngineReading, after: EngineReading) -> float | None:
    """Prompt tokens that were looked up in the prefix cache and not found there: those that had to be
    computed. None where the engine has no such cache. (What it counts as prompts, or as tokens of its steps,
    holds what the cache had.)"""
    if before.prefix_queries is None or before.prefix_hits is None:
        return None
    if not after.prefix_queries or after.prefix_hits is None:
        return None
    missed = after.prefix_queries - before.prefix_queries - (after.prefix_hits - before.prefix_hits)
    return max(0.0, missed)


def _by_own_clock(before: EngineReading, after: EngineReading) -> tuple[float, float, float] | None:
    """An engine that measures its decode steps, without prompts in them."""
    taken = _difference(before.step_time, after.step_time)
    if taken is None or taken.count < 1:
        return None
    return taken.sum / taken.count, 0.0, EXACT


def _by_wall_clock(
    before: EngineReading, after: EngineReading, elapsed: float
) -> tuple[float, float, float] | None:
    """An engine that only counts its output: busy at both looks, it was busy in between."""
    if before.output_tokens is None or after.output_tokens is None:
        return None
    produced = after.output_tokens - before.output_tokens
    running = min(before.running or 0.0, after.running or 0.0)
    if running < 1 or produced < LEAST_TOKENS:
        return None
    prompts = 0.0
    if before.prompt_tokens is not None and after.prompt_tokens is not None:
        prompts = after.prompt_tokens - before.prompt_tokens
    steps = produced / running
    return elapsed / steps, prompts / steps, ROUGH


def restarted(before: EngineReading, after: EngineReading) -> bool:
    """Whether a counter fell: another process answers."""
    pairs = ((before.output_tokens, after.output_tokens), (before.prompt_tokens, after.prompt_tokens))
    return any(old is not None and new is not None and new < old for old, new in pairs)


def _difference(before: Total | None, after: Total | None) -> Total | None:
    if before is None or after is None or after.count < before.count or after.sum < before.sum:
        return None
    return Total(after.sum - before.sum, after.count - before.count)


def _mean(before: float | None, after: float | None) -> float | None:
    if before is None or after is None:
        return after if before is None else before
    return (before + after) / 2


def _held(before: EngineReading, after: EngineReading, capacity: int | None) -> float:
    """KV tokens held, on average; 0 where nobody tells: the coefficient then stays the table's."""
    held = _mean(before.held_tokens, after.held_tokens)
    if held is not None:
        return held
    use = _mean(before.kv_use, after.kv_use)
    return use * capacity if use is not None and capacity else 0.0
