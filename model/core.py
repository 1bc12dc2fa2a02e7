"""The gateway's own features, predictor and estimator, run from Python many requests at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tokenweir.luavm import new_runtime

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]
Indices = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int32]

BATCH: Final = Path(__file__).with_name("batch.lua")
FIGURES: Final = 6
ENDINGS: Final = {"stop": 0, "length": 1, "cut": 2}


@dataclass(frozen=True, slots=True)
class Words:
    """The hashed words of many requests: those of request k are `index[start[k]:start[k] + count[k]]`."""

    index: Indices
    count: Counts

    @property
    def start(self) -> npt.NDArray[np.int64]:
        """Where each request's words begin."""
        return np.concatenate(([0], np.cumsum(self.count[:-1], dtype=np.int64))).astype(np.int64)

    def take(self, rows: npt.NDArray[np.int64]) -> Words:
        """The words of some requests, in that order."""
        starts, counts = self.start[rows], self.count[rows].astype(np.int64)
        total = int(counts.sum())
        offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        return Words(self.index[offsets + np.arange(total)], counts.astype(np.int32))


@dataclass(frozen=True, slots=True)
class Requests:
    """What the features say of requests: vectors (n, features) of float32, words, and per request the number
    of its system prompt (0: none), its estimated prompt tokens, its prompt's bytes and the number of its last
    message."""

    vectors: Vectors
    words: Words
    system: Floats
    tokens: Floats
    bytes: Floats
    message: Floats


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests in time. All arrays have one entry per request.

    `request` is the row of its vector and words, `model` the public model (index into `names`), `fit` the
    index of the exported model that predicts it (-1: none), `key`, `system`, `session`, `message` identities
    (0: none), `limit` its max_tokens (below 0: none), `output` what one sequence produced, `ending` a code of
    `ENDINGS`, `arrival` and `finish` times in any unit.
    """

    names: Sequence[str]
    request: npt.NDArray[np.int64]
    model: npt.NDArray[np.int64]
    fit: npt.NDArray[np.int64]
    key: Floats
    system: Floats
    session: Floats
    message: Floats
    limit: Floats
    output: Floats
    ending: npt.NDArray[np.uint8]
    arrival: Floats
    finish: Floats


@dataclass(frozen=True, slots=True)
class Predictions:
    """What was predicted of each request of a stream, in tokens, and the past features (n, past) it came
    from. `running` is true where running figures were served."""

    mean: Floats
    median: Floats
    q90: Floats
    sd: Floats
    running: npt.NDArray[np.bool_]
    past: Vectors


class Core:
    """One LuaJIT runtime with the predictor's modules."""

    def __init__(self) -> None:
        self._runtime = new_runtime()
        self._batch = self._runtime.execute(BATCH.read_bytes())
        self.names: list[str] = [name.decode() for name in self._batch.names.values()]
        self.past = int(self._batch.past)
        self.version = int(self._batch.version)
        self.space = int(self._batch.space)
        self.steps = int(self._batch.steps)

    def require(self, name: str) -> Any:
        """A Lua module."""
        module = self._runtime.eval(b"require")(name.encode())
        return module[0] if isinstance(module, tuple) else module

    def script(self, text: bytes) -> Any:
        """What a Lua chunk returns."""
        return self._runtime.execute(text)

    def identity(self, text: str) -> float:
        """The number by which worker tables know a text."""
        return float(self.require("tokenweir.core.identity").string(text.encode()))

    def digest(self, text: bytes) -> str:
        """XXH64 of a text as 16 hex digits, as the gateway checks it."""
        module = self.require("tokenweir.core.hash")
        return str(module.hex(module.string(text)).decode())

    def read(self, kinds: Sequence[str], bodies: Sequence[bytes]) -> Requests:
        """Parse bodies and read their features. Raises ValueError naming the first that is refused."""
        n = len(bodies)
        if len(kinds) != n:
            raise ValueError("as many kinds as bodies are wanted")
        table = self._runtime.table_from
        done = self._batch.read(table([kind.encode() for kind in kinds]), table(list(bodies)), n)
        if done[0] is None:
            raise ValueError(done[1].decode())
        vectors, counts, index, meta = done
        figures = np.frombuffer(meta, np.float64).reshape(n, 4)
        return Requests(
            np.frombuffer(vectors, np.float32).reshape(n, len(self.names)).copy(),
            Words(np.frombuffer(index, np.uint16).copy(), np.frombuffer(counts, np.int32).copy()),
            figures[:, 0].copy(),
            figures[:, 1].copy(),
            figures[:, 2].copy(),
            figures[:, 3].copy(),
        )

    def build(self, payload: dict[str, Any]) -> Any:
        """The gateway's model of a payload. Raises ValueError with the gateway's reason."""
        found = self._batch.build(self._to_lua(payload), payload["version"].encode())
        return self._model(found)

    def open(self, envelope: dict[str, Any], payload: Any) -> Any:
        """The gateway's model of an envelope whose payload decodes to `payload` (None: to nothing). Raises
        ValueError with the gateway's reason."""
        decoded = None if payload is None else self._to_lua(payload)
        return self._model(self._batch.open(self._to_lua(envelope), lambda _: decoded))

    @staticmethod
    def _model(found: Any) -> Any:
        if isinstance(found, tuple):
            raise ValueError(f"{found[1].decode()}: {found[2].decode()}")
        return found

    def evaluate(self, model: Any, vectors: Vectors, words: Words, limits: Floats) -> Floats:
        """Per vector (its past filled): the median and the distances to the 10 % and 90 % quantiles, in
        ln(1 + tokens) against the base; the word score; the mean of min(output, limit) in tokens."""
        n = len(vectors)
        given = {
            b"vectors": np.ascontiguousarray(vectors, np.float32).tobytes(),
            b"counts": words.count.astype(np.int32).tobytes(),
            b"index": words.index.astype(np.uint16).tobytes(),
            b"limits": np.asarray(limits, np.float64).tobytes(),
        }
        result, _ = self._batch.evaluate(model, n, self._runtime.table_from(given))
        return np.frombuffer(result, np.float64).reshape(n, 5).copy()

    def new_state(self) -> Any:
        """A worker's estimator that knows nothing yet."""
        return self._batch.new_state()

    def replay(
        self, state: Any, models: Sequence[Any], requests: Requests, stream: Stream, threshold: float = 50
    ) -> Predictions:
        """Play a stream through an estimator as a worker would see it: every request is predicted when it
        arrives and learned from when it is complete."""
        n = len(stream.request)
        fields = {
            b"n": n,
            b"threshold": threshold,
            b"vectors": np.ascontiguousarray(requests.vectors, np.float32).tobytes(),
            b"counts": requests.words.count.astype(np.int32).tobytes(),
            b"index": requests.words.index.astype(np.uint16).tobytes(),
            b"starts": requests.words.start.astype(np.float64).tobytes(),
            b"request_of": stream.request.astype(np.int32).tobytes(),
            b"model_of": stream.fit.astype(np.int32).tobytes(),
            b"name_of": stream.model.astype(np.int32).tobytes(),
            b"ending": stream.ending.astype(np.uint8).tobytes(),
            b"ids": np.column_stack((stream.key, stream.system, stream.session, stream.message))
            .astype(np.float64)
            .tobytes(),
            b"limit": stream.limit.astype(np.float64).tobytes(),
            b"output": stream.output.astype(np.float64).tobytes(),
            b"events": _events(stream).tobytes(),
            b"event_count": 2 * n,
        }
        table = self._runtime.table_from
        figures, past = self._batch.replay(
            state, table(list(models)), table([name.encode() for name in stream.names]), table(fields)
        )
        found = np.frombuffer(figures, np.float64).reshape(n, FIGURES)
        return Predictions(
            found[:, 0].copy(),
            found[:, 1].copy(),
            found[:, 2].copy(),
            found[:, 3].copy(),
            found[:, 4] > 0,
            np.frombuffer(past, np.float32).reshape(n, self.past).copy(),
        )

    def _to_lua(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict):
            return self._runtime.table_from({key.encode(): self._to_lua(item) for key, item in value.items()})
        if isinstance(value, (list, tuple)):
            return self._runtime.table_from([self._to_lua(item) for item in value])
        return value


def _events(stream: Stream) -> npt.NDArray[np.int32]:
    """Arrivals (k + 1) and completions (-(k + 1)) in the order of time; what ends at a moment comes first."""
    n = len(stream.request)
    times = np.concatenate((stream.arrival, np.maximum(stream.finish, stream.arrival)))
    # A request that takes no time still arrives before it ends.
    kind = np.concatenate((np.ones(n), np.where(stream.finish > stream.arrival, 0, 2)))
    order = np.lexsort((kind, times))
    codes = np.concatenate((np.arange(1, n + 1), -np.arange(1, n + 1))).astype(np.int32)
    return codes[order]
