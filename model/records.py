"""Reads completions to train from: what a sidecar recorded, or a file of one's own.

Two kinds of rows are understood, in JSON lines (`.jsonl`, `.jsonl.gz`) or Parquet (a file or a folder of
files):

- recorded ones, with the columns of `RECORDED`;
- requests as they were sent: `body` (the JSON body, as a text or an object) and `output` (tokens of the
  answer), and optionally those of `OPTIONAL`. Their features are read by the gateway's own code, their past
  is played.

A row that cannot be right (not a number, below 0, beyond any engine's context) is left out and counted.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from model.core import ENDINGS, Core, Stream, Words
from model.dataset import Dataset, of_stream
from tokenweir import recorded
from tokenweir.contract import names

MOST_WORDS: Final = 4096
RECORDED: Final = ("time_ms", "model", "output", "ending", "limit", "features", "vector", "words")
RAW: Final = ("body", "output")
OPTIONAL: Final = ("time", "model", "kind", "key", "session", "finish")
EXAMPLE: Final = '{"body": {"model": "m", "messages": [...]}, "output": 123, "finish": "stop"}'
CAPPED: Final = {"length", "max_tokens"}


Array = np.ndarray[Any, Any]


class DataError(ValueError):
    """A file that cannot be trained from; the text says what is wrong and how to mend it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A dataset and, by reason, how many rows were left out."""

    data: Dataset
    dropped: Counter[str]


def load(path: Path, core: Core) -> Found:
    """Read a file or a folder of files. Raises DataError."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    rows, columns = _rows(path)
    if set(RECORDED) <= columns:
        return _recorded(rows, core, path)
    if set(RAW) <= columns:
        return _raw(rows, core, path)
    missing = [name for name in RAW if name not in columns]
    raise DataError(
        f"{path} has the columns {', '.join(sorted(columns)) or '(none)'}; missing: {', '.join(missing)}. "
        f"Wanted are {' and '.join(RAW)} (optionally {', '.join(OPTIONAL)}), for example {EXAMPLE}; "
        f"or, as a sidecar records them, {', '.join(RECORDED)}"
    )


def _rows(path: Path) -> tuple[list[dict[str, Any]], set[str]]:
    files = recorded.files(path) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} holds no {recorded.PARQUET} and no {recorded.LINES} file")
    rows: list[dict[str, Any]] = []
    for file in files:
        rows += _parquet(file) if file.suffix == ".parquet" else _lines(file)
    if not rows:
        raise DataError(f"{path} is empty")
    return rows, set().union(*(row.keys() for row in rows[:1000]))


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import parquet  # noqa: PLC0415  (only where Parquet is read)
    except ImportError:
        raise DataError(f"{path}: reading Parquet needs pyarrow (requirements-train.lock)") from None
    try:
        found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no Parquet file: {error}") from None
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return list(_read_lines(path))


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        number = 0
        try:
            for line in lines:
                number += 1
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise DataError(f"{path}, line {number}: a JSON object is wanted, for example {EXAMPLE}")
                yield row
        except (UnicodeDecodeError, json.JSONDecodeError, gzip.BadGzipFile) as error:
            raise DataError(f"{path}, line {number}: not JSON: {error}") from None


def _tokens(value: Any) -> float | None:
    """A number of tokens, or None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    return number if math.isfinite(number) and 0 <= number <= names.MOST_TOKENS else None


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        return None
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return None


def recorded_row(row: Mapping[str, Any], core: Core) -> tuple[Array, Array] | str:
    """The vector and the words of a recorded row, or the reason why it is not believed."""
    if row.get("features") != core.version:
        return "other_features"
    vector, index = _bytes(row.get("vector")), _bytes(row.get("words"))
    if vector is None or len(vector) != 4 * len(core.names) or index is None or len(index) % 2:
        return "no_vector"
    numbers, words = np.frombuffer(vector, "<f4"), np.frombuffer(index, "<u2")
    if not np.isfinite(numbers).all() or np.abs(numbers).max() > 1e9:
        return "absurd_vector"
    if len(words) > MOST_WORDS or (len(words) and words.max() >= core.space):
        return "absurd_words"
    if _tokens(row.get("output")) is None:
        return "absurd_output"
    if row.get("ending") not in ENDINGS:
        return "no_ending"
    if row.get("limit") is not None and _tokens(row.get("limit")) is None:
        return "absurd_limit"
    if not isinstance(row.get("model"), str) or not row["model"]:
        return "no_model"
    return numbers, words


def _recorded(rows: list[dict[str, Any]], core: Core, path: Path) -> Found:
    dropped: Counter[str] = Counter()
    kept: list[tuple[dict[str, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for row in rows:
        found = recorded_row(row, core)
        if isinstance(found, str):
            dropped[found] += 1
        else:
            kept.append((row, *found))
    if not kept:
        raise DataError(f"{path}: none of {len(rows)} rows can be used: {_reasons(dropped)}")
    kept.sort(key=lambda item: _time(item[0].get("time_ms")))
    words = [item[2] for item in kept]
    data = Dataset(
        np.array([item[1] for item in kept], np.float32),
        Words(np.concatenate(words).astype(np.uint16), np.array([len(each) for each in words], np.int32)),
        np.array([float(item[0]["output"]) for item in kept]),
        np.array([ENDINGS[item[0]["ending"]] for item in kept], np.uint8),
        np.array([-1.0 if item[0]["limit"] is None else float(item[0]["limit"]) for item in kept]),
        np.array([item[0]["model"] for item in kept]),
        _groups(words),
    )
    return Found(data, dropped)


def _groups(words: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows that ask the same: those with the same words."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(each.tobytes(), len(numbers)) for each in words])


def _time(value: Any) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return number if math.isfinite(number) else 0.0


def _reasons(dropped: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in dropped.most_common())


def _raw(rows: list[dict[str, Any]], core: Core, path: Path) -> Found:
    dropped: Counter[str] = Counter()
    kinds: list[str] = []
    bodies: list[bytes] = []
    kept: list[tuple[float, dict[str, Any], dict[str, Any]]] = []
    for row in rows:
        body = _body(row.get("body"))
        if body is None:
            dropped["no_body"] += 1
        elif _tokens(row.get("output")) is None:
            dropped["absurd_output"] += 1
        else:
            text = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
            kind = row.get("kind") or _kind(body)
            try:
                core.read([kind], [text])
            except ValueError:
                dropped["refused_body"] += 1
                continue
            kinds.append(kind)
            bodies.append(text)
            kept.append((_time(row.get("time")), row, body))
    if not kept:
        raise DataError(f"{path}: none of {len(rows)} rows can be used: {_reasons(dropped)}")
    requests = core.read(kinds, bodies)
    limit = np.array([_limit(body) for _, _, body in kept])
    names, model = np.unique(
        [str(row.get("model") or body.get("model") or "") for _, row, body in kept], return_inverse=True
    )
    n = len(kept)
    # Rows without times come in the order of the file.
    time = np.array([item[0] for item in kept]) + np.arange(n) * 1e-6
    stream = Stream(
        names=[str(name) for name in names],
        request=np.arange(n),
        model=model.astype(np.int64),
        fit=np.full(n, -1),
        key=np.array([_identity(core, row.get("key")) for _, row, _ in kept]),
        system=requests.system,
        session=np.array([_identity(core, row.get("session")) for _, row, _ in kept]),
        message=requests.message,
        limit=limit,
        output=np.array([float(row["output"]) for _, row, _ in kept]),
        ending=np.array([_ending(row.get("finish")) for _, row, _ in kept], np.uint8),
        arrival=time,
        finish=time,
    )
    past = core.replay(core.new_state(), [], requests, stream).past
    starts = requests.words.start
    words = [
        requests.words.index[at : at + count] for at, count in zip(starts, requests.words.count, strict=True)
    ]
    return Found(of_stream(requests, stream, past, _groups(words)), dropped)


def _ending(finish: Any) -> int:
    if finish in CAPPED:
        return ENDINGS["length"]
    return ENDINGS["cut" if finish == "cut" else "stop"]


def _identity(core: Core, value: Any) -> float:
    return core.identity(str(value)) if value not in (None, "") else 0.0


def _body(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _kind(body: dict[str, Any]) -> str:
    if "messages" in body:
        return "chat"
    return "responses" if "input" in body else "completions"


def _limit(body: dict[str, Any]) -> float:
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        value = _tokens(body.get(name))
        if value is not None:
            return value
    return -1.0
