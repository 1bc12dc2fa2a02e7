"""The bundled set that a predictor is trained from before any completion was recorded.

    python -m model.bootstrap        # makes it anew from the recorded lengths (TOKENWEIR_DATA)

It holds feature vectors, hashed words and output lengths of chats built around recorded prompts: no text. The
sources are named in `bootstrap/README.md`.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from model import chats, recorded
from model.core import Core, Requests, Stream, Words
from model.dataset import Dataset, concatenate, of_stream, thin

FOLDER: Final = Path(__file__).with_name("bootstrap")
REQUESTS, TIMES, WORDS = (FOLDER / f"{name}.npz" for name in ("requests", "streams", "words"))
SEED: Final = 1
MOST_OF_A_PROMPT: Final = 12
"""Outputs of one prompt: those of 133 models are much alike, and would outweigh the other sources."""
SEEN_TWICE: Final = 2
"""Prompts that a word must stand in to be kept; training weighs no other (`training.LEAST_FREQUENCY`)."""
CHATS: Final = "chats_"
STREAMS: Final = (CHATS, "prompts_")


class StaleBootstrapError(ValueError):
    """The bundled set was made for other features."""


def applications(rows: recorded.Recorded) -> Any:
    """The report that each output is from: what "model" means where prompts stand alone."""
    return np.array([name.rsplit("/", 1)[0] for name in rows.variant])


def streams(core: Core, rows: recorded.Recorded, seed: int) -> list[tuple[Requests, Stream]]:
    """The outputs twice: as chats of applications, and as single prompts to models."""
    chat_requests, chat_stream = chats.stream(core, rows, seed)
    plain_requests, plain_stream = chats.stream(core, rows, seed + 1, histories=False)
    names, model = np.unique(applications(rows), return_inverse=True)
    plain_stream = replace(plain_stream, names=[str(name) for name in names], model=model.astype(np.int64))
    return [(chat_requests, chat_stream), (plain_requests, plain_stream)]


def dataset(core: Core, rows: recorded.Recorded, seed: int) -> Dataset:
    """The training set of recorded outputs: both streams, played through an estimator that knows nothing."""
    parts = []
    for requests, stream in streams(core, rows, seed):
        past = core.replay(core.new_state(), [], requests, stream).past
        parts.append(of_stream(requests, stream, past, rows.prompt))
    return concatenate(parts)


def make(core: Core, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of the bundled set, from a folder of recorded data."""
    rows = recorded.load(folder)
    rows = rows.take(thin(rows.prompt, MOST_OF_A_PROMPT, SEED))
    n = len(rows.output)
    (requests, chat), (plain, single) = streams(core, rows, SEED)
    first = np.unique(rows.prompt, return_index=True)[1]
    number = np.searchsorted(rows.prompt[first], rows.prompt)
    # Requests of one prompt stand together: their columns repeat, and compress.
    order = np.argsort(rows.prompt, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    content = np.concatenate((requests.vectors[order], plain.vectors[first]))[:, core.past : -1]
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "names": np.frombuffer(json.dumps(core.names).encode(), np.uint8),
        "features": np.array([core.version]),
        "content": np.ascontiguousarray(content.T),
        "prompt": np.concatenate((number[order], np.arange(len(first)))).astype(np.uint16),
    }
    for name, stream, request in zip(STREAMS, (chat, single), (place, n + number), strict=True):
        arrays.update(_pack(name, stream, request))
    return arrays | _pack_words(plain.words.take(first))


def _pack(name: str, stream: Stream, request: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    order = np.argsort(stream.arrival)
    packed: dict[str, np.ndarray[Any, Any]] = {
        "names": np.frombuffer(json.dumps(list(stream.names)).encode(), np.uint8),
        "request": request[order].astype(np.uint16),
        "model": stream.model[order].astype(np.uint8),
        "limit": stream.limit[order].astype(np.int16),
        "output": stream.output[order].astype(np.int16),
        "ending": stream.ending[order],
    }
    # Any numbers do for identities, as long as they differ; 0 stays nobody.
    for field in ("key", "system", "session"):
        codes = np.unique(np.append(getattr(stream, field), 0.0), return_inverse=True)[1][:-1]
        packed[field] = codes[order].astype(np.uint16)
    return {f"{name}{field}": values for field, values in packed.items()}


def _pack_words(words: Words) -> dict[str, np.ndarray[Any, Any]]:
    frequency = np.bincount(words.index, minlength=2**16)
    kept = frequency[words.index] >= SEEN_TWICE
    row = np.repeat(np.arange(len(words.count)), words.count)[kept]
    index = words.index[kept]
    order = np.lexsort((index, row))
    return {"index": index[order], "count": np.bincount(row, minlength=len(words.count)).astype(np.uint16)}


def write(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Write the bundled files."""
    FOLDER.mkdir(exist_ok=True)
    files: dict[Path, dict[str, np.ndarray[Any, Any]]] = {REQUESTS: {}, TIMES: {}, WORDS: {}}
    for name, values in arrays.items():
        path = TIMES if name.startswith(STREAMS) else WORDS if name in {"index", "count"} else REQUESTS
        files[path][name] = values
    for path, content in files.items():
        np.savez_compressed(path, allow_pickle=False, **content)


def load(core: Core) -> Dataset:
    """The bundled set, its past features made by playing it through an estimator. Raises
    StaleBootstrapError."""
    with np.load(REQUESTS) as found, np.load(TIMES) as streams_of, np.load(WORDS) as words:
        if json.loads(found["names"].tobytes()) != core.names or int(found["features"][0]) != core.version:
            raise StaleBootstrapError(
                f"{REQUESTS} was made for other features: make it anew with `python -m model.bootstrap`"
            )
        content = found["content"]
        vectors = np.zeros((content.shape[1], len(core.names)), np.float32)
        vectors[:, core.past : -1] = content.T
        prompt = found["prompt"].astype(np.int64)
        of_prompt = Words(words["index"], words["count"].astype(np.int32))
        requests = Requests(vectors, of_prompt.take(prompt), *(np.zeros(len(vectors)) for _ in range(4)))
        parts = []
        for name in STREAMS:
            stream = _unpack(streams_of, name, prompt)
            past = core.replay(core.new_state(), [], requests, stream).past
            parts.append(of_stream(requests, stream, past, prompt[stream.request]))
    return concatenate(parts)


def _unpack(found: Any, name: str, prompt: np.ndarray[Any, Any]) -> Stream:
    def column(field: str) -> Any:
        return found[f"{name}{field}"]

    n = len(column("output"))
    message = 1.0 + prompt[column("request")] if name == CHATS else np.zeros(n)
    return Stream(
        names=json.loads(column("names").tobytes()),
        request=column("request").astype(np.int64),
        model=column("model").astype(np.int64),
        fit=np.full(n, -1),
        key=column("key").astype(np.float64),
        system=column("system").astype(np.float64),
        session=column("session").astype(np.float64),
        message=message,
        limit=column("limit").astype(np.float64),
        output=column("output").astype(np.float64),
        ending=column("ending"),
        arrival=np.arange(n, dtype=np.float64),
        finish=np.arange(n, dtype=np.float64) + 10.5,
    )


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    write(make(Core(), Path(os.environ.get("TOKENWEIR_DATA") or root.parent / "shared" / "data")))
    for path in (REQUESTS, TIMES, WORDS):
        print(f"{path.relative_to(root)}: {path.stat().st_size / 1024:.0f} KiB")
