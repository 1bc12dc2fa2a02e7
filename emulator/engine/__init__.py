"""A model of an inference engine in virtual time: continuous batching over paged KV memory, as vLLM V1 does
it.

Pure computation, no input or output and no clock of its own: the server drives it in real time, the benches
and the simulator in virtual time. Times are milliseconds, memory is blocks of 16 tokens.
"""

from emulator.engine.batching import Engine
from emulator.engine.events import Event, EventKind
from emulator.engine.exhaustion import Exhaustion
from emulator.engine.limits import Limits
from emulator.engine.request import Request, State

__all__ = ["Engine", "Event", "EventKind", "Exhaustion", "Limits", "Request", "State"]
