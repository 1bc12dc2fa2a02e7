"""Both languages accept and refuse the same documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from tests.contract.conftest import Check
from tokenweir.contract.records import Lease, Snapshot

BACKEND: dict[str, Any] = {
    "id": "gpu-a",
    "host": "127.0.0.1",
    "port": 8000,
    "models": {"llama": "meta-llama/Llama-3-8B"},
    "state": "ready",
    "memory": None,
    "capacity": 41408,
    "cost": {"prefill": 0.09, "base": 15, "per_sequence": 0.005, "per_kv_token": 0.000137},
    "reasons": ["ready"],
}
SNAPSHOT: dict[str, Any] = {"schema": 1, "fence": 1, "sequence": 2, "time_ms": 3, "backends": [BACKEND]}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The good snapshot with one member changed; `path` is dotted, numbers index lists."""
    document: dict[str, Any] = json.loads(json.dumps(SNAPSHOT))
    at: Any = document
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        at = at[part]
    at[last] = value
    return document


def test_lua_accepts_what_python_dumps(lua_check: Check) -> None:
    text = Snapshot.model_validate(SNAPSHOT).dump()
    assert lua_check("snapshot", text) == (True, "")


def test_lua_accepts_a_lease_with_buckets(lua_check: Check) -> None:
    lease = Lease(id="gw", time_ms=1, sequence=1, backends={"gpu-a": {"n": 1, "buckets": {"3": (1, 20, 5)}}})  # type: ignore[dict-item]
    assert lua_check("lease", lease.dump()) == (True, "")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("backends.0.port", 0),
        ("backends.0.port", "8000"),
        ("backends.0.port", 80.5),
        ("backends.0.state", "sleeping"),
        ("backends.0.cost.prefill", -1),
        ("backends.0.cost.base", 0),
        ("backends.0.cost", None),
        ("backends.0.capacity", 0),
        ("backends.0.memory", 1.2),
        ("backends.0.reasons", "ready"),
        ("backends.0.models", ["llama"]),
        ("policy", "fastest"),
        ("level", 5),
        ("fence", -1),
        ("burst", "yes"),
        ("backends", {"gpu-a": 1}),
    ],
)
def test_both_refuse_a_snapshot_with_a_bad_value(lua_check: Check, path: str, value: Any) -> None:
    document = changed(path, value)
    with pytest.raises(ValidationError):
        Snapshot.model_validate_json(json.dumps(document), strict=True)
    accepted, error = lua_check("snapshot", json.dumps(document))
    assert not accepted or path == "backends"
    if path != "backends":
        assert path.rsplit(".", maxsplit=1)[-1] in error


def test_lua_refuses_a_schema_that_it_does_not_know(lua_check: Check) -> None:
    accepted, error = lua_check("snapshot", json.dumps(changed("schema", 2)))
    assert not accepted
    assert "schema 2" in error


@pytest.mark.parametrize("document", ["[]", "3", '"text"', "null"])
def test_lua_refuses_what_is_no_object(lua_check: Check, document: str) -> None:
    assert lua_check("snapshot", document)[0] is False
