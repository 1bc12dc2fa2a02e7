"""The sidecar's part of the scale bench."""

from __future__ import annotations

from bench.scale import fleet, tick
from tokenweir.contract.records import Snapshot, State


def test_the_measured_tick_decides_on_engines_that_serve_and_learn() -> None:
    sidecar = tick.Sidecar(5, seed=1)
    for _ in range(6):
        sidecar.look()
        text = sidecar.tick()
    snapshot = Snapshot.model_validate_json(text)
    assert {backend.state for backend in snapshot.backends} == {State.READY}
    assert all("fitted to" in " ".join(backend.reasons) for backend in snapshot.backends)
    assert snapshot.models[fleet.MODEL].load is not None


def test_the_gateway_s_fleet_keeps_the_contract() -> None:
    made = fleet.snapshot(fleet.backends(300, seed=1), 1)
    assert Snapshot.model_validate_json(made.dump()) == made
    assert len({backend.host for backend in made.backends}) == 300
