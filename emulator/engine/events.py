"""What happened to a request, and when."""

from enum import IntEnum
from typing import NamedTuple

from emulator.engine.request import Request


class EventKind(IntEnum):
    """The kinds of events that a caller hears of."""

    FIRST_TOKEN = 0
    """The prompt is computed and the first token is out (for an embedding only FINISHED follows)."""
    PREEMPTED = 1
    """Its memory was taken; it will be computed again."""
    FINISHED = 2
    FAILED = 3
    """The engine gave it up: `request.failure` says why."""


class Event(NamedTuple):
    """One event at a time in ms."""

    time: float
    kind: EventKind
    request: Request
