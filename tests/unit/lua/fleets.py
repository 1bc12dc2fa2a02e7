"""Snapshots, fleets and views for the tests of the policies."""

from __future__ import annotations

from typing import Any

COST = {"prefill": 0.06, "base": 9.0, "per_sequence": 0.06, "per_kv_token": 0.0001}


def backend(name: str, **members: Any) -> dict[str, Any]:
    """A ready backend of a snapshot that serves `m` and holds 16,000 KV tokens."""
    values: dict[str, Any] = {
        "id": name,
        "host": "10.0.0.1",
        "port": 8000,
        "models": {"m": "upstream-m"},
        "state": "ready",
        "capacity": 16000,
        "cost": dict(COST),
    }
    return values | members


def snapshot(*backends: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A snapshot of these backends."""
    return {"schema": 1, "fence": 1, "sequence": 1, "time_ms": 1, "backends": list(backends)} | members


def equal(count: int, **members: Any) -> list[dict[str, Any]]:
    """So many equal backends."""
    return [backend(f"b{i}", **members) for i in range(1, count + 1)]


def to_lua(runtime: Any, value: Any) -> Any:
    """A decoded JSON value as Lua tables; strings become bytes, None becomes nil."""
    if isinstance(value, dict):
        return runtime.table_from(
            {key.encode() if isinstance(key, str) else key: to_lua(runtime, v) for key, v in value.items()}
        )
    if isinstance(value, list):
        return runtime.table_from([to_lua(runtime, item) for item in value])
    return value.encode() if isinstance(value, str) else value


def build(runtime: Any, document: Any, settings: Any = None) -> tuple[Any, str]:
    """The document checked, then `fleet.build` with places in order of appearance: (fleet or None, error)."""
    build_fleet = runtime.eval(
        b"""function(document, settings, place_of)
          local ok, err = require("tokenweir.core.documents.check").document(document, "snapshot")
          if not ok then
            return nil, err
          end
          return require("tokenweir.core.backend.fleet").build(document, settings, place_of)
        end"""
    )
    places: dict[bytes, int] = {}

    def place_of(name: bytes) -> int:
        return places.setdefault(name, len(places))

    answer = build_fleet(to_lua(runtime, document), to_lua(runtime, settings), place_of)
    fleet, err = answer if isinstance(answer, tuple) else (answer, None)
    return fleet, (err or b"").decode()
