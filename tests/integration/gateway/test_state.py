"""What a gateway knows follows Redis, and survives without it."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.gateway.gateway import Gateway

Publish = Callable[..., None]


def test_a_gateway_follows_the_snapshot_and_the_settings(gateway: Gateway) -> None:
    known = gateway.json("state")
    assert known["backends"] == ["gpu-a", "gpu-b"]
    assert known["settings"]["limits"]["tries"] == 3
    assert (known["fence"], known["sequence"]) == (1, 1)
