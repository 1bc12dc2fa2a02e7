"""Step times that are easy to reckon with, and short ways to ask an engine."""

from emulator.engine import Engine, Request
from tokenweir.facts import StepTime

PLAIN = StepTime(
    memory=10.0, fixed=0.0, per_token=0.0, scheduler=0.0, per_sequence=0.0, per_kv_token=0.0, attention=0.0
)
"""Every step takes 10 ms."""

REAL = StepTime(
    memory=9.0, fixed=2.0, per_token=0.06, scheduler=0.6, per_sequence=0.01, per_kv_token=2e-4, attention=1e-6
)


def held_blocks(engine: Engine) -> int:
    """Blocks that are not free."""
    return engine.memory.blocks - engine.memory.free


def requests(*shapes: tuple[int, int]) -> list[Request]:
    """Requests of (prompt, output) tokens."""
    return [Request(prompt, output) for prompt, output in shapes]
