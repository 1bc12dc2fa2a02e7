"""Workers that see one crash at the same moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.integration.gateway.gateway import Gateway

PROMPTS = 500


def test_one_crash_that_two_workers_see_at_once_is_no_proof_against_a_prompt(gateway: Gateway) -> None:
    gateway.get("suspect", count=PROMPTS).raise_for_status()
    with ThreadPoolExecutor(2) as pool:
        seen = [pool.submit(gateway.json, "crash") for _ in range(2)]
    assert {one.result()["quarantined"] for one in seen} == {0}
