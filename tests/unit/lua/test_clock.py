"""`lua/tokenweir/clock.lua`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from tokenweir.luavm import LUA_ROOT

WALL = re.compile(r"\bngx\.(now|time|localtime|utctime|today)\b|\bos\.(time|date)\b")
MAY_READ_WALL = {
    "events.lua",  # when a record was written
    "init_worker.lua",  # how old a file of an earlier start is
    "lease.lua",  # when a lease was written
    "limits.lua",  # minutes, which all gateways cut alike
    "models.lua",  # `created` in the list of models
    "redis_clock.lua",  # until Redis has told its own
    "region.lua",  # when the gateway was started
}


def test_wall_time_is_read_only_where_a_moment_is_told_to_others() -> None:
    reading = {
        str(path.relative_to(LUA_ROOT / "tokenweir"))
        for path in LUA_ROOT.rglob("*.lua")
        if WALL.search(path.read_text())
    }
    assert reading == MAY_READ_WALL


def test_it_is_the_same_clock_as_every_other_process_on_the_host(require: Callable[[str], Any]) -> None:
    before = time.monotonic() * 1000
    now = require("tokenweir.clock").ms()
    after = time.monotonic() * 1000
    assert before <= now <= after
