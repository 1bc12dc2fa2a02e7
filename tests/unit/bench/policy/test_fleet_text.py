"""`bench/policy/fleet_text.py`."""

from __future__ import annotations

import pytest

from bench.policy import fleet_text
from bench.policy.server import ServerSpec

EACH = ServerSpec(model="llama-3-8b", precision="fp8", capacity=1600)


def test_parts_are_servers_in_their_order() -> None:
    servers = fleet_text.read("2xA100-80G, H100 ,3 * T4 : int4", EACH)
    kinds = [(spec.gpu, spec.precision) for spec in servers]
    assert kinds == [("A100-80G", "fp8")] * 2 + [("H100", "fp8")] + [("T4", "int4")] * 3
    assert {(spec.model, spec.capacity) for spec in servers} == {("llama-3-8b", 1600)}


def test_the_example_is_a_fleet() -> None:
    assert len(fleet_text.read(fleet_text.EXAMPLE, EACH)) == 7


@pytest.mark.parametrize("text", ["", ",", "2xH100;T4:", "H100:", ":int4", "0xH100", "1999xH100,2xT4"])
def test_what_is_no_fleet_is_told_with_an_example(text: str) -> None:
    with pytest.raises(fleet_text.FleetError, match=fleet_text.EXAMPLE):
        fleet_text.read(text, EACH)


def test_a_fleet_is_told_by_kind_with_the_memory_of_one() -> None:
    servers = fleet_text.read("T4:int4,2xH100,T4:int4", EACH)
    assert fleet_text.describe(servers) == "2 x T4 int4 (1,600 KV tokens), 2 x H100 fp8 (1,600 KV tokens)"
