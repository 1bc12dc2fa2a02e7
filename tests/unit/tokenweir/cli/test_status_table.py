"""The table of `status`."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from tokenweir.cli.status import fleet_table, predictor_line, reasons

BACKEND: dict[str, Any] = {
    "id": "a100-a",
    "state": "ready",
    "shown": "ready",
    "role": "active",
    "reason": "answers",
    "models": {"llama-3-8b": "llama-3-8b"},
    "in_flight": 3.0,
    "configuration": {"gpu": "A100-80G", "precision": "fp16"},
    "decision": {
        "memory": 0.42,
        "capacity": 431_000,
        "low": 69.6,
        "high": 17.4,
        "reasons": ["state: ready", "cost: facts of 1 x A100-80G"],
    },
    "ejected_by": {"gateway-1": "3 failures in a row"},
}


def shown(backends: list[dict[str, Any]]) -> str:
    console = Console(width=120, record=True, file=None)
    with console.capture() as capture:
        console.print(fleet_table(backends))
    return capture.get()


def test_a_row_shows_what_a_backend_is_how_full_it_is_and_its_scores() -> None:
    row = next(line for line in shown([{**BACKEND, "ejected_by": {}}]).splitlines() if "a100-a" in line)
    assert row.split() == [
        "a100-a",
        "A100-80G",
        "fp16",
        "llama-3-8b",
        "ready",
        "3",
        "42%",
        "431k",
        "69.6",
        "17.4",
    ]


def test_one_that_a_gateway_tries_again_is_told_from_one_that_serves() -> None:
    backend = {**BACKEND, "ejected_by": {}, "tried_by": {"gateway-1": "status"}}
    row = next(line for line in shown([backend]).splitlines() if "a100-a" in line)
    assert "ready, on trial" in row
    assert reasons(backend).endswith("tried by gateway-1 with single requests after: status")


def test_a_spare_that_is_stopped_on_purpose_is_not_told_as_down() -> None:
    backend = {
        **BACKEND,
        "ejected_by": {},
        "shown": "standby",
        "reason": "stopped while it is not needed (Connection refused)",
        "decision": {**BACKEND["decision"], "reasons": ["state: down: Connection refused", "cost: facts"]},
    }
    told = "state: standby: stopped while it is not needed (Connection refused); cost: facts"
    assert reasons(backend) == f"a100-a: {told}"


def test_what_is_not_known_is_a_question_mark() -> None:
    backend = {**BACKEND, "decision": None, "models": {}, "configuration": {}, "ejected_by": {}}
    row = next(line for line in shown([backend]).splitlines() if "a100-a" in line)
    assert row.split() == ["a100-a", "?", "?", "ready", "3", "?", "?", "?", "?"]


def test_roles_are_shown_only_where_a_backend_is_not_active() -> None:
    quiet = {**BACKEND, "ejected_by": {}}
    spare = {**quiet, "id": "s", "role": "standby", "state": "down", "shown": "standby"}
    promoted = {**quiet, "id": "p", "configuration": {"gpu": "T4", "role": "standby"}}
    assert "role" not in shown([quiet])
    table = shown([quiet, spare, promoted, {**quiet, "id": "f", "role": "fallback"}])
    assert "role" in table.splitlines()[0]
    rows = {line.split()[0]: line for line in table.splitlines()[1:]}
    assert "  active " in rows["a100-a"]
    assert "standby  " in rows["s"]
    assert "down" not in rows["s"], "it was stopped on purpose"
    assert "standby, in service" in rows["p"]
    assert "fallback" in rows["f"]
    assert all(len(line) <= 120 for line in table.splitlines())


def test_a_backend_that_a_gateway_has_ejected_is_not_told_as_merely_ready() -> None:
    assert "ready, ejected" in shown([BACKEND])


def test_a_sidecar_of_an_older_version_is_shown_by_what_it_tells() -> None:
    older = {key: value for key, value in BACKEND.items() if key != "shown"}
    assert "ready, ejected" in shown([older])


def test_the_reasons_say_which_gateway_has_ejected_a_backend() -> None:
    assert reasons(BACKEND) == (
        "a100-a: state: ready; cost: facts of 1 x A100-80G; ejected by gateway-1: 3 failures in a row"
    )


LEARNING: dict[str, Any] = {
    "enabled": True,
    "version": None,
    "recorded": 400,
    "waiting": 12,
    "wanted": 2000,
    "missing": ["sklearn"],
    "mend": "run this",
}


def test_the_line_of_the_predictor_says_what_serves_and_how_much_there_is_to_train_from() -> None:
    line = predictor_line(LEARNING)
    assert "running figures" in line
    assert "412 completions recorded of 2,000" in line
    assert "model v7; 412" in predictor_line(LEARNING | {"version": "v7"})
    assert "off" in predictor_line(LEARNING | {"enabled": False})


def test_it_says_what_to_do_where_there_is_enough_and_training_is_not_installed() -> None:
    assert predictor_line(LEARNING | {"recorded": 3000}).endswith("to train: run this")
    assert predictor_line(LEARNING | {"recorded": 3000, "missing": []}).endswith("completions recorded")
