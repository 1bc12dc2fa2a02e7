"""Chats built around recorded prompts: applications with keys, system prompts, tools, sampling, sessions.

The recorded prompts stand alone. Here every variant of a model becomes an application of its own, whose
users ask its prompts in sessions: what was asked and answered before in a session stands in the body before
the prompt, the answers as filler of the recorded length. Nothing of an output that is to be predicted is
told, except as far as what an application answered before tells it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from model.core import Core, Requests, Stream
from model.recorded import Recorded

WHO: Final = (
    "a helpful assistant",
    "Ada",
    "the assistant of a help desk",
    "a tutor",
    "an expert",
    "a friendly bot",
)
WHERE: Final = (
    "on a web page",
    "in a mobile app",
    "inside an editor",
    "for a school",
    "for a bookshop",
    "on the phone",
)
STYLE: Final = (
    "Be kind.",
    "Do not make things up.",
    "If you do not know, say so.",
    "Never talk about yourself.",
    "Use plain language.",
    "Follow the rules of the house.",
    "Today is Monday.",
)
TOOLS: Final = (
    "search",
    "calculator",
    "weather",
    "calendar",
    "translate_text",
    "run_code",
    "open_ticket",
    "lookup",
)
LIMITS: Final = (None, None, None, 1024, 2048, 4096)
WORD: Final = "lorem ipsum dolor sit amet consectetur "
SAMPLING: Final[dict[str, dict[str, Any]]] = {
    "greedy": {"temperature": 0},
    "beam5": {"temperature": 0},
    "k50": {"temperature": 0.75, "top_p": 0.95},
    "nucleus9": {"temperature": 0.8, "top_p": 0.9},
    "typical2": {"temperature": 0.8, "top_p": 0.8},
    "typical3": {"temperature": 0.8},
    "contrastive": {"top_p": 1},
}
RATE: Final = 1.0
"""Requests a second, all applications together."""
SECONDS_PER_TOKEN: Final = 0.03
MOST_TURNS: Final = 6


@dataclass(frozen=True, slots=True)
class Application:
    """What all requests of one application share."""

    key: str
    system: str | None
    sampling: dict[str, Any]
    tools: list[dict[str, Any]]
    limit: int | None
    kind: str
    turns: float
    """Mean length of a session."""


def application(variant: str, config: str, seed: int, known: float = 0.75) -> Application:
    """The application of a variant: everything of it drawn by its name and the seed. `known`: the chance
    that it has a key, and that it has a system prompt."""
    rng = np.random.default_rng([zlib.crc32(variant.encode()), seed])
    system = None
    if rng.random() < known:
        parts = rng.permutation(len(STYLE))[: int(rng.integers(0, 5))]
        rules = " ".join(STYLE[k] for k in parts)
        who, where = WHO[int(rng.integers(len(WHO)))], WHERE[int(rng.integers(len(WHERE)))]
        system = f"You are {who} {where}, number {rng.integers(1000)}. {rules}".strip()
    tools = []
    if rng.random() < 0.15:
        tools = [_tool(TOOLS[k]) for k in rng.permutation(len(TOOLS))[: int(rng.integers(1, 7))]]
    sampling = dict(SAMPLING.get(config, {"temperature": round(float(rng.uniform(0, 1.2)), 1)}))
    if rng.random() < 0.1:
        sampling["stop"] = ["\n\nUser:"]
    if rng.random() < 0.7:
        sampling["stream"] = True
    kind = str(rng.choice(("chat", "completions", "responses"), p=(0.85, 0.05, 0.1)))
    limit = LIMITS[int(rng.integers(len(LIMITS)))]
    turns = 1.0 if rng.random() < 0.5 else float(rng.uniform(1.5, 4))
    key = variant if rng.random() < known else ""
    if kind == "completions":
        # A bare prompt, as that endpoint is used.
        return Application(key, None, sampling, [], limit, kind, 1.0)
    return Application(key, system, sampling, tools, limit, kind, turns)


def _tool(name: str) -> dict[str, Any]:
    properties = {"query": {"type": "string", "description": f"What to {name}"}}
    schema = {"type": "object", "properties": properties, "required": ["query"]}
    return {
        "type": "function",
        "function": {"name": name, "description": f"The {name} tool", "parameters": schema},
    }


def _answer(characters: float) -> str:
    size = int(characters)
    return (WORD * (size // len(WORD) + 1))[:size]


def body(model: str, app: Application, turns: Sequence[tuple[str, float]], prompt: str) -> bytes:
    """The body of a request: `turns` are the earlier prompts of the session and the characters of their
    answers."""
    members: dict[str, Any] = {"model": model, **app.sampling}
    messages: list[dict[str, Any]] = []
    for asked, characters in turns:
        messages += [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": _answer(characters)},
        ]
    if app.kind == "completions":
        members["prompt"] = prompt
        limit = "max_tokens"
    elif app.kind == "responses":
        members["input"] = [*messages, {"role": "user", "content": prompt}]
        if app.system:
            members["instructions"] = app.system
        limit = "max_output_tokens"
    else:
        system = [{"role": "system", "content": app.system}] if app.system else []
        members["messages"] = [*system, *messages, {"role": "user", "content": prompt}]
        limit = "max_tokens"
        if app.tools:
            members["tools"] = app.tools
    if app.limit is not None:
        members[limit] = app.limit
    return json.dumps(members, ensure_ascii=False).encode()


def stream(
    core: Core,
    recorded: Recorded,
    seed: int,
    *,
    histories: bool = True,
    known: float = 0.75,
    fit: npt.NDArray[np.int64] | None = None,
) -> tuple[Requests, Stream]:
    """The recorded outputs as a stream of chats, in an order drawn by the seed.

    `known`: see `application`; `histories` False: no keys, no system prompts, no sessions, no message twice;
    `fit`: the exported model of each output (none by default)."""
    n = len(recorded.output)
    rng = np.random.default_rng(seed)
    apps = {
        str(name): application(str(name), str(config), seed, known)
        for name, config in zip(recorded.variant, recorded.config, strict=True)
    }
    plain = Application("", None, {}, [], None, "chat", 1.0)
    arrival = np.cumsum(rng.exponential(1 / RATE, n))
    order = rng.permutation(n)
    time = np.empty(n)
    time[order] = arrival
    bodies: list[bytes] = [b""] * n
    kinds: list[str] = [""] * n
    limit, key, session = np.full(n, -1.0), np.zeros(n), np.zeros(n)
    open_sessions: dict[str, tuple[float, list[tuple[str, float]]]] = {}
    identities: dict[str, float] = {"": 0.0}
    for row in order:
        app = apps[str(recorded.variant[row])] if histories else plain
        name = str(recorded.variant[row])
        number, turns = open_sessions.pop(name, (0.0, []))
        if number == 0.0 or rng.random() < 1 / app.turns or len(turns) >= MOST_TURNS:
            number, turns = float(rng.integers(1, 2**52)), []
        text = recorded.texts[recorded.prompt[row]]
        bodies[row] = body(str(recorded.model[row]), app, turns, text)
        kinds[row] = app.kind
        if app.key not in identities:
            identities[app.key] = core.identity(app.key)
        key[row] = identities[app.key]
        session[row] = number if app.turns > 1 else 0.0
        limit[row] = -1 if app.limit is None else app.limit
        if app.turns > 1:
            open_sessions[name] = number, [*turns, (text, float(recorded.characters[row]))]
    requests = core.read(kinds, bodies)
    names, model = np.unique(recorded.model, return_inverse=True)
    output = np.where(limit >= 0, np.minimum(recorded.output, limit), recorded.output)
    return requests, Stream(
        names=[str(name) for name in names],
        request=np.arange(n),
        model=model.astype(np.int64),
        fit=np.full(n, -1) if fit is None else fit,
        key=key,
        system=requests.system,
        session=session,
        message=requests.message if histories else np.zeros(n),
        limit=limit,
        output=output,
        ending=(output < recorded.output).astype(np.uint8),
        arrival=time,
        finish=time + 0.5 + SECONDS_PER_TOKEN * output,
    )
