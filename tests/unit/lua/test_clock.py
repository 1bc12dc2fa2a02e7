"""`lua/tokenweir/clock.lua`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def test_it_is_the_same_clock_as_every_other_process_on_the_host(require: Callable[[str], Any]) -> None:
    before = time.monotonic() * 1000
    now = require("tokenweir.clock").ms()
    after = time.monotonic() * 1000
    assert before <= now <= after
