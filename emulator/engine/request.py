"""One sequence on its way through the engine."""

from collections.abc import Hashable, Sequence
from enum import IntEnum
from math import nan
from typing import Any


class State(IntEnum):
    """Where a request is."""

    WAITING = 0
    PREFILL = 1
    DECODE = 2
    DONE = 3


class Request:
    """One sequence: what it needs, and how far it is.

    `prompt` and `output` are tokens; `output` is how many it will produce (the model of an engine knows that;
    an engine does not, and the engine model never decides by it), 0 for an embedding. `hashes` names the
    content of the leading blocks, one for each full hash block, each hash standing for everything up to its
    block's end; it may reach past the prompt, where what the request will produce is known. `tag` is the
    caller's own.
    """

    __slots__ = (
        "allocated",
        "base",
        "cached",
        "computed",
        "context",
        "failure",
        "finish_step",
        "finished",
        "first_token",
        "hashes",
        "joined",
        "number",
        "output",
        "preemptions",
        "prompt",
        "queued",
        "scheduled",
        "shared",
        "state",
        "tag",
        "target",
    )

    def __init__(
        self, prompt: int, output: int, hashes: Sequence[Hashable] = (), tag: Any = None, queued: float = nan
    ) -> None:
        if prompt < 1 or output < 0:
            raise ValueError(
                f"a request needs a prompt of at least one token, got {prompt} and output {output}"
            )
        self.prompt, self.output, self.tag = prompt, output, tag
        self.hashes: Sequence[Hashable] = hashes
        self.number = -1
        self.state = State.WAITING
        self.failure = ""
        # Times, ms; nan until it happened.
        self.queued, self.scheduled, self.first_token, self.finished = queued, nan, nan, nan
        self.cached = -1
        self.preemptions = 0
        # Prefill: `computed` of `target` tokens are in KV memory, in `allocated` blocks.
        self.computed, self.target, self.allocated = 0, prompt, 0
        # Leading hash blocks that other requests may share.
        self.shared: list[Hashable] = []
        # Decode: at step counter `joined` it held `context` tokens and had produced `base`; all advance
        # together.
        self.base, self.joined, self.context, self.finish_step = 0, 0, 0, 0

    def __repr__(self) -> str:
        return f"Request({self.number}, prompt={self.prompt}, output={self.output}, {self.state.name})"
