"""`lua/tokenweir/core/backend/fleet.lua`."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.fleets import COST, backend, build, equal, snapshot, to_lua
from tokenweir.contract.records import Snapshot
from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()


def test_numbers_and_strings_are_arrays_by_index(lua: Any) -> None:
    fleet, _ = build(
        lua, snapshot(backend("a"), backend("b", port=9000, tls=True, sni="x.example", memory=0.25))
    )
    assert fleet.size == 2
    assert (fleet.id[2], fleet.host[2], fleet.port[2]) == (b"b", b"10.0.0.1", 9000)
    assert (fleet.tls[1], fleet.tls[2], fleet.sni[2]) == (False, True, b"x.example")
    assert (fleet.memory[2], fleet.prefill[2], fleet.per_kv_token[2]) == (0.25, 0.06, 0.0001)
    assert fleet.index[b"b"] == 2


def test_what_is_not_known_is_marked(lua: Any) -> None:
    fleet, _ = build(lua, snapshot(backend("a", capacity=None)))
    assert (fleet.memory[1], fleet.load[1], fleet.progress_age_ms[1]) == (-1, -1, -1)
    assert (fleet.capacity[1], fleet.concurrency[1], fleet.context[1]) == (0, 0, 0)


def test_a_null_of_cjson_counts_as_not_known(lua: Any) -> None:
    null = lua.eval(b'require "ffi".cast("void *", 0)')
    fleet, err = build(
        lua, snapshot(backend("a", capacity=null, memory=null, foreign=null, tls=null, sni=null))
    )
    assert err == ""
    assert (fleet.capacity[1], fleet.memory[1], fleet.foreign_requests[1], fleet.tls[1]) == (0, -1, 0, False)


def test_what_the_contract_dumps_is_accepted(lua: Any) -> None:
    document = Snapshot.model_validate(snapshot(*equal(2))).model_dump(mode="json", by_alias=True)
    fleet, err = build(lua, document)
    assert (fleet.size, err) == (2, "")


def test_pools_list_the_backends_of_a_model_with_their_own_names(lua: Any) -> None:
    fleet, _ = build(
        lua,
        snapshot(
            backend("a", models={"llama": "L8", "m": "m"}),
            backend("b", models={"m": "m"}),
            backend("c", models={"llama": "other/L8"}),
        ),
    )
    pool = fleet.models[b"llama"]
    assert (pool.size, pool[1], pool[2]) == (2, 1, 3)
    assert (pool.upstream[1], pool.upstream[2], pool.name) == (b"L8", b"other/L8", b"llama")


def test_aliases_share_the_pool_and_never_hide_a_served_model(lua: Any) -> None:
    models = [{"name": "m", "aliases": ["gpt-4", "z"]}, {"name": "absent", "aliases": ["nothing"]}]
    fleet, _ = build(lua, snapshot(backend("a"), backend("b", models={"z": "z"})), {"models": models})
    assert fleet.models[b"gpt-4"].name == b"m"
    assert fleet.models[b"z"].name == b"z"
    assert fleet.models[b"nothing"] is None


def test_relative_speed_compares_with_the_peers_of_a_model(lua: Any) -> None:
    slow = {name: value * 4 for name, value in COST.items()}
    fleet, _ = build(
        lua,
        snapshot(
            backend("a"),
            backend("b", cost=slow),
            backend("big", models={"big": "big"}, cost={n: v * 100 for n, v in COST.items()}),
        ),
    )
    assert fleet.relative_speed[1] == pytest.approx(2)
    assert fleet.relative_speed[2] == pytest.approx(0.5)
    assert fleet.relative_speed[3] == pytest.approx(1)


def test_an_empty_fleet_is_a_fleet(lua: Any) -> None:
    fleet, err = build(lua, snapshot())
    assert (fleet.size, err) == (0, "")


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"port": 0}, "backends[2].port"),
        ({"weight": 0}, "weight"),
        ({"weight": math.nan}, "weight"),
        ({"weight": math.inf}, "weight"),
        ({"admit": 1.5}, "admit"),
        ({"memory": -0.1}, "memory"),
        ({"capacity": 0}, "capacity"),
        ({"capacity": 10.5}, "capacity"),
        ({"concurrency": -1}, "concurrency"),
        ({"cost": None}, "cost"),
        ({"cost": COST | {"base": 0}}, "cost.base"),
        ({"cost": COST | {"prefill": math.nan}}, "cost.prefill"),
        ({"foreign": {"requests": -1}}, "foreign.requests"),
        ({"foreign": {"tokens": math.inf}}, "foreign.tokens"),
        ({"low": -1}, "low"),
        ({"high": "90"}, "high"),
        ({"state": "asleep"}, "state"),
        ({"role": "boss"}, "role"),
        ({"progress_age_ms": -5}, "progress_age_ms"),
        ({"scrape_failures": 0.5}, "scrape_failures"),
        ({"id": "b1"}, "'b1' is there twice"),
        ({"id": "b\r\n2"}, "backends[2].id"),
        ({"host": "gpu.example"}, "an IP address is wanted"),
        ({"host": ""}, "host"),
        ({"host_header": "x\r\nEvil: 1"}, "host_header"),
        ({"sni": "x\0"}, "sni"),
        ({"models": None}, "models"),
        ({"models": {"": "m"}}, "models"),
        ({"models": {"m": "m\n"}}, "models"),
    ],
)
def test_a_bad_value_refuses_the_whole_document_and_names_the_member(
    lua: Any, members: dict[str, Any], named: str
) -> None:
    fleet, err = build(lua, snapshot(backend("b1"), backend("b2") | members))
    assert fleet is None
    assert named in err
    assert "\n" not in err


def test_a_ledger_without_a_place_refuses_the_document(lua: Any) -> None:
    build_fleet = lua.eval(b'require "tokenweir.core.backend.fleet".build')
    fleet, err = build_fleet(to_lua(lua, snapshot(backend("a"))), None, lambda _: None)
    assert fleet is None
    assert b"no place left" in err


NUMERIC = [
    ("port",),
    ("weight",),
    ("admit",),
    ("memory",),
    ("capacity",),
    ("concurrency",),
    ("low",),
    ("high",),
    ("progress_age_ms",),
    ("scrape_failures",),
    *(("cost", name) for name in COST),
    ("foreign", "requests"),
    ("foreign", "tokens"),
]


@given(
    path=st.sampled_from(NUMERIC),
    value=st.one_of(
        st.sampled_from([math.nan, math.inf, -math.inf, True, "1", [], {}]), st.floats(max_value=-1e-9)
    ),
)
def test_no_bad_number_is_ever_built_in(path: tuple[str, ...], value: Any) -> None:
    second: dict[str, Any] = backend("b2", foreign={"requests": 0, "tokens": 0})
    at = second
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    fleet, err = build(RUNTIME, snapshot(backend("b1"), second))
    assert fleet is None
    assert path[-1] in err
