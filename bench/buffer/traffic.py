"""What the clients of the overload send: 20 keys in three priority classes, one of them a flood."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

MODEL = "llama-3-8b"
KEYS = [f"key-{number:02d}" for number in range(20)]
FLOOD = KEYS[0]
PRIORITIES = {
    key: "high" if number % 5 == 1 else "low" if number % 5 == 2 else "normal"
    for number, key in enumerate(KEYS)
}
"""Four keys of high priority, four of low, twelve of normal, the flood among them."""
SHORT_SHARE = 0.4
"""Of the requests: labels and extractions, whose clients bound their length; the others are chats."""
CHAT_LIMIT = 600
_WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"]


@dataclass(frozen=True)
class Request:
    """One request. Times in s."""

    id: str
    at: float
    """When it is sent, from the start of the run."""
    key: str
    priority: str
    body: bytes
    output: int
    """Tokens that the engine will produce."""


def _request(source: random.Random, number: int, at: float, key: str, name: str) -> Request:
    if source.random() < SHORT_SHARE:
        limit, output = 48, source.randint(4, 48)
    else:
        # As in the Azure conversation trace of 2023: a lognormal with median 151 and mean 210.
        limit = CHAT_LIMIT
        output = max(1, min(limit, round(151 * math.exp(0.81 * source.gauss(0, 1)))))
    words = source.choices(_WORDS, k=int(min(300, source.lognormvariate(4, 0.7))))
    document = {
        "model": MODEL,
        "messages": [{"role": "user", "content": " ".join(words)}],
        "max_tokens": limit,
    }
    return Request(
        id=f"{name}-{number:06d}",
        at=at,
        key=key,
        priority=PRIORITIES[key],
        body=json.dumps(document).encode(),
        output=output,
    )


def requests(seconds: float, others: float, flood: float, seed: int, name: str) -> Iterator[Request]:
    """Poisson arrivals: `others` requests a second over the 19 keys, `flood` of the flooding one."""
    source, flooding = random.Random(seed), random.Random(seed + 1)
    # The others' requests are the same whether there is a flood or not.
    arrivals = []
    at = 0.0
    while (at := at + source.expovariate(others)) < seconds:
        arrivals.append((at, source.choice(KEYS[1:]), source.randrange(2**32)))
    at = 0.0
    while flood > 0 and (at := at + flooding.expovariate(flood)) < seconds:
        arrivals.append((at, FLOOD, flooding.randrange(2**32)))
    for number, (at, key, drawn) in enumerate(sorted(arrivals)):
        yield _request(random.Random(drawn), number, at, key, name)
