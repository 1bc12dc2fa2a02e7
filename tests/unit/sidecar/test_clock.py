"""`sidecar/clock.py`, and that nothing else reads a clock that jumps."""

from __future__ import annotations

import re
import time
from pathlib import Path

import sidecar
from sidecar import clock

FOLDER = Path(sidecar.__file__).parent
WALL = re.compile(r"\btime\.time(_ns)?\(|\bdatetime\.(now|utcnow|today)\(")
MAY_READ_WALL = {
    "actuators/kubernetes_api.py",  # the annotation by which `kubectl rollout restart` restarts
    "actuators/webhook.py",  # the time of a signature
    "clock.py",
}


def test_wall_time_is_read_only_where_a_moment_is_told_to_others() -> None:
    reading = {
        str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.py") if WALL.search(path.read_text())
    }
    assert reading == MAY_READ_WALL


def test_ages_go_by_the_clock_that_does_not_jump() -> None:
    before = time.monotonic() * 1000
    assert before <= clock.monotonic_ms() <= time.monotonic() * 1000
