"""Alerts stand until their cause is gone."""

from __future__ import annotations

from sidecar.control.alerts import PAGES, Alerts, Kind


def test_an_alert_stands_with_the_time_of_its_first_word():
    alerts = Alerts()
    assert alerts.put(Kind.XID, "a", "XID 79", 1000)
    assert not alerts.put(Kind.XID, "a", "XID 79, still", 5000)
    (alert,) = alerts.standing.values()
    assert (alert.since_ms, alert.text, alert.page) == (1000, "XID 79, still", True)
    assert alerts.raised[Kind.XID] == 1


def test_it_goes_with_its_cause():
    alerts = Alerts()
    alerts.put(Kind.FALLBACK, "m", "few", 1)
    assert alerts.clear(Kind.FALLBACK, "m")
    assert not alerts.clear(Kind.FALLBACK, "m")
    alerts.put(Kind.XID, "a", "one", 1)
    alerts.put(Kind.RESTARTS_SPENT, "a", "two", 1)
    alerts.put(Kind.XID, "b", "three", 1)
    alerts.clear_subject("a")
    assert [alert.subject for alert in alerts.standing.values()] == ["b"]


def test_only_what_no_decision_mends_calls_somebody():
    alerts = Alerts()
    alerts.put(Kind.FALLBACK, "m", "few", 1)
    assert not next(iter(alerts.standing.values())).page


def test_every_kind_is_explained_with_whether_it_pages(root):
    text = (root / "docs/admin-api.md").read_text().partition("## Alerts")[2].partition("## Metrics")[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    found = {name.strip("`"): "yes" in row[-1] for row in rows for name in row[0].strip("| ").split(", ")}
    assert found == {kind.value: kind in PAGES for kind in Kind}


def test_those_of_a_backend_or_model_that_is_gone_go_with_it():
    alerts = Alerts()
    alerts.put(Kind.XID, "a", "one", 1)
    alerts.put(Kind.XID, "b", "two", 1)
    alerts.put(Kind.FALLBACK, "m", "few", 1)
    alerts.put(Kind.FALLBACK, "n", "few", 1)
    alerts.put(Kind.PREDICTION_DEVIATION, "n", "far", 1)
    alerts.keep({"a"}, {"m"})
    assert set(alerts.standing) == {(Kind.XID, "a"), (Kind.FALLBACK, "m"), (Kind.PREDICTION_DEVIATION, "n")}


def test_another_sidecar_shows_exactly_those_of_the_leader_since_when_they_stand():
    alerts, other = Alerts(), Alerts()
    alerts.put(Kind.XID, "a", "XID 79", 1000)
    other.put(Kind.FALLBACK, "m", "few", 1)
    other.restore([*alerts.dump(), {"kind": "of a later version", "subject": "a", "text": "", "since_ms": 1}])
    assert other.standing == alerts.standing
