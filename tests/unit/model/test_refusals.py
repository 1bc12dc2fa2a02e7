"""`lua/tokenweir/core/prediction/predictor.lua`: which models a gateway refuses, and why."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from model import export
from tests.unit.model.conftest import Example

Change = Callable[[dict[str, Any]], None]


def changed(payload: dict[str, Any], change: Change) -> dict[str, Any]:
    other = copy.deepcopy(payload)
    change(other)
    return other


def repack(part: dict[str, Any], name: str, kind: str, place: int, value: float) -> None:
    """Put another number into a packed array."""
    numbers = np.frombuffer(base64.b64decode(part[name]), kind).copy()
    numbers[place] = value
    part[name] = base64.b64encode(numbers.tobytes()).decode()


def put(*path: Any, value: Any) -> Change:
    """A change that puts a value at a path."""

    def change(payload: dict[str, Any]) -> None:
        at = payload
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value

    return change


def test_the_model_as_trained_is_accepted(example: Example) -> None:
    assert example.core.build(copy.deepcopy(example.payload)).version == b"test-1"


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("format", put("format", value=2)),
        ("format", put("features", value=999)),
        ("format", lambda p: p["names"].reverse()),
        ("format", lambda p: p["names"].pop()),
        ("value", put("words", value=None)),
        ("value", put("words", "bias", value="x")),
        ("value", put("words", "count", value=7)),
        ("value", lambda p: repack(p["words"], "weights", "<f4", 3, float("nan"))),
        ("value", lambda p: repack(p["words"], "squares", "<f4", 3, -1)),
        ("value", lambda p: repack(p["words"], "index", "<u2", 3, 65535)),
        ("value", put("trees", "count", value=0)),
        ("value", put("trees", "nodes", value=3)),
        ("value", lambda p: p["trees"].pop("median")),
        ("value", lambda p: p["trees"]["upper"].update(trees=1)),
        ("value", lambda p: p["trees"].update(value=p["trees"]["value"][:-8])),
        ("value", lambda p: repack(p["trees"], "value", "<f8", 0, float("inf"))),
        ("value", lambda p: repack(p["trees"], "feature", "<u1", 0, 200)),
        ("value", lambda p: repack(p["trees"], "right", "<u2", 0, 0)),
        ("value", put("shape", "low", value=[1, 2])),
        ("value", lambda p: p["shape"]["high"].reverse()),
        ("value", put("shape", "mean_factor", value=0)),
        ("value", put("prior", "mean", value=1e9)),
        ("value", put("prior", "models", value={"m": "long"})),
        ("vectors", put("vectors", value=[])),
        ("vectors", lambda p: p["vectors"][0].update(median=p["vectors"][0]["median"] + 1e-4)),
        ("vectors", lambda p: p["vectors"][0].update(x="AAAA")),
        ("vectors", lambda p: p["trees"]["median"].update(start=p["trees"]["median"]["start"] + 0.01)),
    ],
)
def test_a_payload_that_cannot_be_right_is_refused(example: Example, reason: str, change: Change) -> None:
    with pytest.raises(ValueError, match=f"^{reason}: ."):
        example.core.build(changed(example.payload, change))


def test_a_version_that_differs_from_the_envelope_is_refused(example: Example) -> None:
    envelope = json.loads(export.envelope(example.payload, example.core))
    envelope["version"] = "other"
    with pytest.raises(ValueError, match=r"^format: "):
        example.core.open(envelope, json.loads(envelope["payload"]))


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("schema", lambda e: e.update(schema=99)),
        ("schema", lambda e: e.pop("payload")),
        ("schema", lambda e: e.pop("version")),
        ("checksum", lambda e: e.update(checksum="0" * 16)),
        ("checksum", lambda e: e.update(payload=e["payload"][:-1])),
        ("checksum", lambda e: e.update(payload=e["payload"].replace("1", "2", 1))),
    ],
)
def test_a_damaged_envelope_is_refused(example: Example, reason: str, change: Change) -> None:
    envelope = json.loads(export.envelope(example.payload, example.core))
    change(envelope)
    with pytest.raises(ValueError, match=f"^{reason}: "):
        example.core.open(envelope, example.payload)


def test_a_payload_that_is_no_json_is_refused(example: Example) -> None:
    envelope = json.loads(export.envelope(example.payload, example.core))
    with pytest.raises(ValueError, match=r"^json: "):
        example.core.open(envelope, None)
