"""The page that shows the fleet, run on a document of its own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from sidecar.api.control import AlertView
from sidecar.api.dashboard import FOLDER
from sidecar.api.fleet import FleetRow, FleetView
from sidecar.api.fleet_models import FleetModel
from tokenweir.contract.records import Role, State

USUAL = FleetModel(
    level=0,
    level_reasons=[],
    burst=False,
    burst_reason="",
    fallback=None,
    waiting=0,
    longest_wait_ms=None,
    unusual="",
)
ROW = FleetRow(
    id="a",
    url="http://a:1",
    state=State.READY,
    shown="ready",
    role=Role.ACTIVE,
    promoted=False,
    engine="vllm",
    models=["m"],
    gpu="H100",
    precision="fp16",
    memory=0.42,
    capacity=431_000,
    load=2,
    in_flight=3,
    foreign=0,
    low=69.64,
    high=17.4,
    ejected_by={},
    tried_by={},
    reason="answers",
)
FLEET = FleetView(
    sidecar="s",
    leading=True,
    leader="s",
    fence=1,
    sequence=1,
    snapshot_age_ms=1,
    redis=None,
    policy="predictive",
    shadow=None,
    gateways=1,
    ready=1,
    changes=[],
    backends=[ROW],
    models={"m": USUAL},
    alerts=[],
)
PREDICTOR = {"enabled": True, "version": None, "recorded": 400, "waiting": 12, "wanted": 2000}


def page(**changes: Any) -> dict[str, Any]:
    """What the page shows of a fleet."""
    answers = {
        "api/fleet": json.loads(FLEET.model_copy(update=changes).model_dump_json()),
        "api/decisions/events?limit=20": [
            {"time_ms": 0, "backend": "a", "before": "starting", "after": "ready", "reason": "answers"}
        ],
        "api/predictor": PREDICTOR,
    }
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("page.mjs")), str(FOLDER)],
        input=json.dumps(answers),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def rows(shown: dict[str, Any]) -> list[dict[str, str]]:
    """The table, with the titles of its columns."""
    titles = re.findall(r"<th>(.*?)</th>", (FOLDER / "index.html").read_text())
    found = []
    for row in shown["fleet"]["children"]:
        cells = [cell["text"] for cell in row["children"]]
        found.append(dict(zip(titles, cells, strict=True)))
    return found


def texts(shown: dict[str, Any], name: str) -> list[str]:
    """The entries of a list; none while it is hidden."""
    return [] if shown[f"{name}-shown"]["hidden"] else [item["text"] for item in shown[name]["children"]]


def test_the_page_has_what_the_table_of_make_status_has() -> None:
    shown = page()
    assert rows(shown)[0] == {
        "Backend": "a",
        "GPU": "H100 fp16",
        "Engine": "vllm",
        "Models": "m",
        "Role": "active",
        "State": "ready",
        "In flight": "3",
        "Load": "2",
        "Foreign": "0",
        "Memory": "42 %",
        "KV": "431k",
        "Low": "69.6",
        "High": "17.4",
        "Why": "answers",
    }
    assert "412 completions recorded of 2000 to train from" in shown["predictor"]["text"]
    assert "1 of 1 ready" in shown["summary"]["text"]
    assert "starting to ready" in shown["events"]["children"][0]["text"]


def test_alerts_and_models_are_hidden_while_all_is_as_usual() -> None:
    shown = page()
    assert (texts(shown, "alerts"), texts(shown, "models")) == ([], [])


def test_alerts_and_models_out_of_their_usual_state_are_shown() -> None:
    alert = AlertView(kind="xid", subject="a", text="XID 79", since_ms=0, page=True)
    busy = USUAL.model_copy(update={"level": 1, "unusual": "level 1: new sessions are refused"})
    shown = page(alerts=[alert], models={"m": busy, "other": USUAL})
    assert texts(shown, "models") == ["m: level 1: new sessions are refused"]
    assert re.fullmatch(r"xid of a for .* d \(somebody is wanted\): XID 79", texts(shown, "alerts")[0])
    assert shown["alerts"]["children"][0]["style"] == "page"


def test_roles_a_stopped_spare_and_an_ejected_backend_are_told() -> None:
    spare = {"id": "s", "role": Role.STANDBY, "state": State.DOWN, "shown": "standby"}
    backends = [
        ROW.model_copy(update=spare),
        ROW.model_copy(update={"id": "p", "promoted": True}),
        ROW.model_copy(update={"id": "e", "ejected_by": {"g1": "failures"}}),
        ROW.model_copy(update={"id": "t", "tried_by": {"g1": "status"}}),
        ROW.model_copy(update={"id": "u", "memory": None, "capacity": None, "low": None, "gpu": ""}),
    ]
    shown = page(backends=backends)
    stopped, promoted, ejected, tried, unknown = rows(shown)
    assert (stopped["Role"], stopped["State"]) == ("standby", "standby")
    assert "1 stopped on standby" in shown["summary"]["text"]
    assert promoted["Role"] == "standby, in service"
    assert (ejected["State"], ejected["Why"]) == ("ready, ejected", "answers; ejected by g1: failures")
    assert (tried["State"], tried["Why"]) == (
        "ready, on trial",
        "answers; tried by g1 with single requests after: status",
    )
    assert (unknown["Memory"], unknown["KV"], unknown["Low"]) == ("not measured", "not known", "not known")
