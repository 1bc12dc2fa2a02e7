"""What the admin API changed, kept beside the configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.store import Store
from tokenweir.config.loading import parse
from tokenweir.config.models import BackendConfig, Config
from tokenweir.contract.records import Policy

YAML = (
    "backends: [{id: a, url: http://10.0.0.1:8000}, {id: b, url: http://10.0.0.2:8000}]\nlimits: {idle: 5m}\n"
)

KEPT = "tokenweir.state.json"


def config(text: str = YAML) -> Config:
    return parse(text, "test")


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path


def store_in(folder, text=YAML, edited_ms=0) -> Store:
    return Store(config(text), folder / "tokenweir.yaml", folder / "var", edited_ms)


def ids(store):
    return [backend.id for backend in store.backends()]


def backend(name, port=1, **members):
    return BackendConfig(id=name, url=f"http://10.0.1.{port}:8000", **members)


def test_two_configurations_in_one_folder_have_changes_of_their_own(folder):
    other = Store(config(), folder / "other.yaml", folder / "var")
    other.remove_backend("b")
    assert other.path == folder / "other.state.json"
    assert "b" in ids(store_in(folder))


def test_changes_lie_over_the_file_and_survive_a_restart(folder):
    store = store_in(folder)
    store.set_backend(backend("c"))
    store.set_backend(BackendConfig(id="a", url="http://10.0.0.1:8000", weight=5))
    store.remove_backend("b")
    store.set_draining("a", True)
    store.set_policy("shadow:predictive", "least_conn")
    for seen in (store, store_in(folder)):
        assert ids(seen) == ["a", "c"]
        assert seen.backends()[0].weight == 5
        assert seen.draining() == {"a"}
        assert (seen.config().served_policy, seen.config().shadow_policy) == (
            Policy.LEAST_CONN,
            Policy.PREDICTIVE,
        )
        assert seen.config().limits.idle == 300_000


def test_the_file_is_for_its_owner_alone_and_without_changes_there_is_none(folder):
    store = store_in(folder)
    assert not store.path.exists()
    store.set_draining("a", True)
    assert store.path == folder / KEPT
    assert store.path.stat().st_mode & 0o777 == 0o600


def test_a_backend_edited_in_the_file_after_the_change_wins(folder):
    store_in(folder).remove_backend("b")
    assert ids(store_in(folder)) == ["a"]
    edited = YAML.replace("10.0.0.2:8000", "10.0.0.2:9000")
    assert ids(store_in(folder, edited)) == ["a", "b"]
    assert ids(store_in(folder, edited)) == ["a", "b"]


def test_an_edit_elsewhere_in_the_file_keeps_the_change(folder):
    store_in(folder).remove_backend("b")
    assert ids(store_in(folder, YAML + "policy: hybrid\n")) == ["a"]


def test_a_policy_edited_in_the_file_wins(folder):
    store_in(folder).set_policy("round_robin", "round_robin")
    assert store_in(folder).config().policy == "round_robin"
    assert store_in(folder, YAML + "policy: hybrid\n").config().policy == "hybrid"


def test_a_backend_of_the_api_that_the_file_names_later_is_the_files(folder):
    store_in(folder).set_backend(backend("c", weight=7))
    named = YAML.replace("}]", "}, {id: c, url: http://10.0.1.1:8000}]")
    assert store_in(folder, named).backends()[-1].weight == 1


def test_a_backend_of_the_api_with_a_url_of_the_file_is_left_out(folder):
    store_in(folder).set_backend(backend("c", port=1))
    named = YAML.replace("}]", "}, {id: d, url: http://10.0.1.1:8000}]")
    assert ids(store_in(folder, named)) == ["a", "b", "d"]


def test_a_removed_backend_loses_its_drain(folder):
    store = store_in(folder)
    store.set_backend(backend("c"))
    store.set_draining("c", True)
    store.remove_backend("c")
    store.set_backend(backend("c"))
    assert store.draining() == set()


def pair(tmp_path) -> tuple[Store, Store]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return store_in(tmp_path / "one"), store_in(tmp_path / "two")


def test_another_sidecar_takes_the_changes_into_its_own_file(tmp_path):
    one, two = pair(tmp_path)
    one.set_backend(backend("c"))
    assert two.merge(one.dump()) == (True, False)
    assert ids(store_in(tmp_path / "two")) == ["a", "b", "c"]
    assert two.merge(one.dump()) == (False, False)


def test_the_newest_word_wins_whoever_said_it(tmp_path):
    one, two = pair(tmp_path)
    one.set_draining("a", True)
    two.merge(one.dump())
    two.set_draining("a", False)
    assert one.merge(two.dump()) == (True, False)
    assert one.draining() == set()
    assert two.merge(one.dump()) == (False, False)


def test_changes_made_apart_are_united(tmp_path):
    one, two = pair(tmp_path)
    one.set_draining("a", True)
    two.set_backend(backend("c"))
    assert one.merge(two.dump()) == (True, True)
    two.merge(one.dump())
    assert one.dump() == two.dump()


def test_a_sidecar_with_another_file_does_not_undo_a_change_it_takes_over(tmp_path):
    one, _ = pair(tmp_path)
    other = store_in(tmp_path / "two", YAML.replace("id: a,", "id: a, weight: 2,"))
    one.remove_backend("a")
    other.merge(one.dump())
    assert one.merge(other.dump()) == (False, False)
    assert "a" not in ids(other)


def test_an_edit_of_the_file_undoes_the_change_at_the_other_sidecar_too(tmp_path):
    one, two = pair(tmp_path)
    one.remove_backend("b")
    two.merge(one.dump())
    one.rebase(config(YAML.replace("10.0.0.2:8000", "10.0.0.2:9000")))
    two.merge(one.dump())
    assert (ids(one), ids(two)) == (["a", "b"], ["a", "b"])


def test_a_backend_written_into_the_file_after_its_removal_was_told_is_not_removed(tmp_path):
    one, _ = pair(tmp_path)
    one.set_backend(backend("c"))
    one.remove_backend("c")
    removed = json.loads(one.dump())["entries"]["backend:c"]["time_ms"]
    named = YAML.replace("}]", "}, {id: c, url: http://10.0.1.1:8000}]")
    later = store_in(tmp_path / "two", named, edited_ms=removed + 1)
    assert later.merge(one.dump()) == (True, True)
    assert ids(later) == ["a", "b", "c"]
    one.merge(later.dump())
    assert one.dump() == later.dump()


def test_a_removal_told_after_the_file_was_written_holds(tmp_path):
    one, _ = pair(tmp_path)
    one.remove_backend("b")
    removed = json.loads(one.dump())["entries"]["backend:b"]["time_ms"]
    other = YAML.replace("id: b,", "id: b, weight: 2,")
    assert ids(store_in(tmp_path / "two", other, edited_ms=removed - 1)) == ["a", "b"]
    later = store_in(tmp_path / "two", other, edited_ms=removed - 1)
    later.merge(one.dump())
    assert ids(later) == ["a"]


def test_an_emptied_redis_lacks_everything(folder):
    store = store_in(folder)
    assert store.merge(None) == (False, False)
    store.set_draining("a", True)
    assert store.merge(None) == (False, True)
    assert store.merge("nonsense") == (False, True)


@pytest.mark.parametrize(
    "entry",
    [
        ("backend:c", {"url": "ftp://x"}),
        ("backend:c", {"url": "http://x:1", "id": "d"}),
        ("drain:a", "yes"),
        ("policy", {"policy": "best"}),
        ("policy", None),
        ("rm -rf", 1),
    ],
)
def test_entries_that_cannot_hold_are_not_taken_over(folder, entry):
    store = store_in(folder)
    name, value = entry
    text = json.dumps({"schema": 1, "entries": {name: {"time_ms": 9e12, "value": value}}})
    assert store.merge(text)[0] is False
    assert ids(store) == ["a", "b"]


def test_a_damaged_file_is_set_aside(folder):
    (folder / KEPT).write_text('{"schema": 1, "entr')
    assert ids(store_in(folder)) == ["a", "b"]
    assert (folder / (KEPT + ".damaged")).exists()


def test_a_change_that_cannot_be_kept_is_not_made(folder, monkeypatch):
    store = store_in(folder)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sidecar.store.write_atomically", full)
    with pytest.raises(OSError, match="No space"):
        store.set_draining("a", True)
    assert store.draining() == set()


def test_an_edit_that_ends_a_change_and_cannot_be_kept_is_not_taken(folder, monkeypatch):
    store = store_in(folder)
    store.remove_backend("b")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sidecar.store.write_atomically", full)
    with pytest.raises(OSError, match="No space"):
        store.rebase(config(YAML.replace("10.0.0.2:8000", "10.0.0.2:9000")))
    assert ids(store) == ["a"]
    assert store.base == config()


def test_a_change_of_another_sidecar_holds_though_the_disk_is_full(tmp_path, monkeypatch):
    one, two = pair(tmp_path)
    one.set_draining("a", True)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sidecar.store.write_atomically", full)
    assert two.merge(one.dump()) == (True, False)
    assert two.draining() == {"a"}


def test_a_read_only_folder_leaves_the_changes_in_the_state_folder(folder, monkeypatch):
    monkeypatch.setattr("sidecar.changes.os.access", lambda path, mode: Path(path).name == "var")
    assert store_in(folder).path == folder / "var" / KEPT
