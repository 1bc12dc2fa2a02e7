"""What the clients of the faults bench send, and at which moment some of them leave."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

MODEL = "llama-3-8b"
_WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"]


class Leave(StrEnum):
    """The moment at which a client closes its connection."""

    CONNECTED = "connected"
    """Before it sends anything."""
    HEAD = "head"
    """In the middle of the request's head."""
    BODY = "body"
    """In the middle of the request's body."""
    SENT = "sent"
    """As soon as the request is sent."""
    WAITING = "waiting"
    """While it waits for the first byte."""
    FIRST = "first"
    """At the first bytes of the answer."""
    STREAM = "stream"
    """In the middle of a stream."""


@dataclass(frozen=True)
class Request:
    """One request. Times in s."""

    id: str
    at: float
    """When it is sent, from the start of the run."""
    body: bytes
    stream: bool
    leave: Leave | None
    leave_after: float
    """How long after the request was sent (WAITING), or after its first byte (STREAM)."""


def body(source: random.Random, stream: bool) -> bytes:
    """Return a chat body of a few hundred to some ten thousand bytes, for 4 to 60 output tokens."""
    words = source.choices(_WORDS, k=int(min(2000, source.lognormvariate(4.5, 1))))
    document: dict[str, object] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": " ".join(words)}],
        "max_tokens": source.randint(4, 60),
        "stream": stream,
    }
    if stream:
        document["stream_options"] = {"include_usage": True}
    return json.dumps(document).encode()


def requests(seconds: float, per_second: float, seed: int, leaving: float = 0.3) -> Iterator[Request]:
    """Yield Poisson arrivals for `seconds`; a share of `leaving` leaves, equally often at each moment."""
    source = random.Random(seed)
    at, number = 0.0, 0
    while (at := at + source.expovariate(per_second)) < seconds:
        stream = source.random() < 0.7
        leave = source.choice(list(Leave)) if source.random() < leaving else None
        if leave is Leave.STREAM:
            stream = True
        yield Request(
            id=f"bench-{seed}-{number:06d}",
            at=at,
            body=body(source, stream),
            stream=stream,
            leave=leave,
            leave_after=source.uniform(0, 0.5),
        )
        number += 1
