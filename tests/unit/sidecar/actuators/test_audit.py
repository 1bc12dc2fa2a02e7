"""The audit log: bounded, on disk, free of forged lines."""

from __future__ import annotations

import json
import stat

import pytest

from sidecar.actuators import audit as audit_module
from sidecar.actuators.actuator import Action, Order
from sidecar.actuators.audit import FILE, Audit


def order(number=1, reason="crash"):
    return Order(f"id{number}", "gpu-a", Action.RESTART, ("--x",), reason)


def test_an_entry_is_one_line_of_json_readable_by_its_owner_alone(tmp_path):
    Audit(tmp_path, 10).note(order(), "docker", "done", "restarted", 12.34)
    path = tmp_path / FILE
    (line,) = path.read_text().splitlines()
    entry = json.loads(line)
    assert (entry["backend"], entry["action"], entry["stage"]) == ("gpu-a", "restart", "done")
    assert (entry["actuator"], entry["arguments"], entry["duration_ms"]) == ("docker", ["--x"], 12.3)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_reason_cannot_forge_a_line(tmp_path):
    audit = Audit(tmp_path, 10)
    audit.note(order(reason='x"}\n{"backend": "forged\u2028\x1b[31m'), "docker", "done")
    assert len((tmp_path / FILE).read_text().splitlines()) == 1
    (entry,) = audit.entries()
    assert "\n" not in entry.reason
    assert "\x1b" not in entry.reason


def test_a_long_text_is_cut(tmp_path):
    audit = Audit(tmp_path, 10)
    audit.note(order(), "command", "failed", "x" * 100_000)
    (entry,) = audit.entries()
    assert len(entry.detail) == audit_module.LONGEST_TEXT


def test_memory_holds_the_newest_and_a_restart_finds_them_again(tmp_path):
    audit = Audit(tmp_path, 10)
    for number in range(25):
        audit.note(order(number), "docker", "done")
    assert [entry.id for entry in audit.entries()] == [f"id{number}" for number in range(24, 14, -1)]
    assert [entry.id for entry in Audit(tmp_path, 3).entries()] == ["id24", "id23", "id22"]


def test_a_full_file_is_set_aside_once(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_module, "MOST_BYTES", 1000)
    audit = Audit(tmp_path, 100)
    for number in range(50):
        audit.note(order(number), "docker", "done")
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == [FILE, FILE + ".1"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert next(Audit(tmp_path, 100).entries()).id == "id49"


def test_a_damaged_line_does_not_lose_the_others(tmp_path):
    audit = Audit(tmp_path, 10)
    audit.note(order(1), "docker", "done")
    with (tmp_path / FILE).open("a") as file:
        file.write("half a li\n")
    audit.note(order(2), "docker", "done")
    assert [entry.id for entry in Audit(tmp_path, 10).entries()] == ["id2", "id1"]


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / FILE).mkdir()
    audit = Audit(tmp_path, 10)
    audit.note(order(), "docker", "done")
    assert audit.unwritten == 1
    assert len(list(audit.entries())) == 1


def test_entries_are_counted_by_backend_action_and_stage(tmp_path):
    audit = Audit(tmp_path, 10)
    audit.note(order(1), "docker", "begun")
    audit.note(order(1), "docker", "done")
    audit.note(order(2), "docker", "done")
    assert audit.counts["gpu-a", "restart", "done"] == 2


@pytest.mark.parametrize(("kept", "left"), [(2, 2), (50, 5)])
def test_another_bound_holds_from_now_on(tmp_path, kept, left):
    audit = Audit(tmp_path, 10)
    for number in range(5):
        audit.note(order(number), "docker", "done")
    audit.keep(kept)
    assert len(list(audit.entries())) == left
