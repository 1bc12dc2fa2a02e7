"""What the admin API has changed is told in words."""

from __future__ import annotations

from pathlib import Path

from sidecar.departures import departures
from sidecar.store import Store
from tokenweir.config.loading import parse
from tokenweir.config.models import BackendConfig

YAML = (
    "backends: [{id: a, url: http://10.0.0.1:1}, {id: b, url: http://10.0.0.2:1}, {id: c, url: http://c:1}]\n"
)


def store_in(folder: Path) -> Store:
    return Store(parse(YAML, "test"), folder / "tokenweir.yaml", folder)


def test_the_file_alone_needs_no_word(tmp_path: Path) -> None:
    assert departures(store_in(tmp_path)) == []


def test_every_change_is_named_with_its_subject(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.set_policy("round_robin", "round_robin")
    store.remove_backend("b")
    store.set_backend(BackendConfig(id="a", url="http://10.0.0.1:1", weight=5))
    store.set_backend(BackendConfig(id="d", url="http://10.0.0.4:1"))
    store.set_draining("c", True)
    assert departures(store) == [
        "policy round_robin, not predictive",
        "a changed",
        "b removed",
        "d added",
        "c drained",
    ]


def test_a_change_that_was_taken_back_is_none(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.set_draining("c", True)
    store.set_draining("c", False)
    store.set_backend(BackendConfig(id="a", url="http://10.0.0.1:1"))
    assert departures(store) == []
