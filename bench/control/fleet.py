"""The emulated fleet of the control bench: its engines live for the whole bench, and are well again before
each scenario."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

from bench.servers.engine import Engine, EngineKind

MODEL: Final = "llama-3.1-8b"
FALLBACK_MODEL: Final = "qwen2.5-0.5b"
CAPACITY: Final = 60_000
ACTIVE: Final = 6
SPARE: Final = "spare"
SMALL: Final = "small"
FRAGILE: Final = "fragile"
SPARE_LOADS_S: Final = 2.0

ENGINE = EngineKind(model=MODEL, capacity=CAPACITY)
DIES = EngineKind(model=MODEL, capacity=CAPACITY, kind="crash")
"""Its process ends when its memory is exhausted, as llama.cpp's and some builds of others do."""
KINDS: Final = {
    **{f"engine-{number}": ENGINE for number in range(ACTIVE)},
    FRAGILE: DIES,
    SPARE: EngineKind(model=MODEL, capacity=CAPACITY, startup_s=SPARE_LOADS_S),
    SMALL: EngineKind(gpu="L4", model=FALLBACK_MODEL),
}


class Fleet:
    """The engines by name."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.engines = {name: stack.enter_context(Engine(name, kind, folder)) for name, kind in KINDS.items()}
        for engine in self.engines.values():
            engine.wait_ready()

    @property
    def active(self) -> dict[str, Engine]:
        """Those that serve in every scenario."""
        return {name: engine for name, engine in self.engines.items() if name not in {SPARE, SMALL, FRAGILE}}

    def mend(self) -> None:
        """Bring every engine back to health, and stop the spare."""
        wanted = {name: one for name, one in self.engines.items() if name != SPARE}
        self.engines[SPARE].kill()
        for engine in wanted.values():
            if not engine.running:
                engine.restart()
        for engine in wanted.values():
            engine.wait_ready()
            engine.call("/admin/fault", {"kind": "none"})
            _until_idle(engine)


def _until_idle(engine: Engine, seconds: float = 20) -> None:
    """Wait until the engine holds nothing of the scenario before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        state = engine.call("/admin/state")
        if not state["running"] and not state["waiting"]:
            return
        time.sleep(0.1)
