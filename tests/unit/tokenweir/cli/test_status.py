"""What `status` prints, of a gateway and a sidecar that a test speaks for."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tokenweir.cli import app
from tokenweir.stack import launch, state_dir
from tokenweir.stack.identity import Identity
from tokenweir.stack.process import PidFile
from tokenweir.stack.settings import keep, read

ROW = {
    "id": "a",
    "state": "ready",
    "shown": "ready",
    "role": "active",
    "reason": "answers",
    "models": {"m": "m"},
    "in_flight": 0,
    "configuration": {},
    "decision": None,
    "ejected_by": {},
}
FLEET = {
    "leading": True,
    "leader": "s",
    "snapshot_age_ms": 5,
    "redis": None,
    "policy": "predictive",
    "shadow": None,
    "gateways": 1,
    "ready": 1,
    "changes": [],
    "backends": [ROW],
    "models": {"m": {"unusual": ""}},
    "alerts": [],
}
ANSWERS: dict[str, Any] = {
    "/readyz": "ready",
    "/api/fleet": FLEET,
    "/api/backends": [ROW],
    "/api/predictor": {"enabled": False},
}


def test_what_was_written_since_up_is_named_and_what_runs_is_shown(
    said: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    path = tmp_path / "tokenweir.yaml"
    settings = read(path)
    settings.state.create()
    launch.claim(settings.state.run, path.resolve())
    keep(settings)
    assert "has changed" not in said({})[1]
    written = path.read_text().replace(
        f"listen: {{port: {settings.config.listen.port}}}", "listen: {port: 1}"
    )
    path.write_text(f"{written}policy: least_conn\n")
    status, output = said({})
    assert status == 0
    assert "has changed since the last `up` (`listen`, `policy`): `make up` applies it" in output
    assert f"gateway http://127.0.0.1:{settings.config.listen.port}/v1: ready" in output


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Callable[..., tuple[int, str]]]:
    """Exit status and output: `said({"/readyz": "ready"})`, with what differs from `ANSWERS`."""
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers[self.path]
            body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        port = server.server_address[1]
        config = tmp_path / "tokenweir.yaml"
        config.write_text(
            f"backends: [http://127.0.0.1:9]\nlisten: {{port: {port}}}\nadmin: {{port: {port}}}\n"
            f"state_dir: {tmp_path}/state\n"
        )

        def run(changes: dict[str, Any]) -> tuple[int, str]:
            answers.clear()
            answers.update(ANSWERS | changes)
            result = CliRunner().invoke(app, ["status", "--config", str(config)])
            return result.exit_code, result.output

        yield run
        server.shutdown()


def test_where_all_is_as_usual_nothing_stands_above_the_table(said: Callable[..., tuple[int, str]]) -> None:
    status, output = said({})
    assert status == 0
    assert "/v1: ready\n" in output
    assert not any(line.startswith(("alert", "model ")) for line in output.splitlines())


def test_alerts_and_models_out_of_their_usual_state_stand_above_the_table(
    said: Callable[..., tuple[int, str]],
) -> None:
    alert = {"kind": "no_actuator", "subject": "a", "text": "it fell", "since_ms": 0, "page": False}
    model = {"unusual": "level 1: new sessions are refused"}
    output = said({"/api/fleet": {**FLEET, "alerts": [alert], "models": {"m": model}}})[1]
    lines = output.splitlines()
    table = next(number for number, line in enumerate(lines) if line.startswith("backend"))
    above = "\n".join(lines[:table])
    assert "alert: no_actuator of a for " in above
    assert "model m: level 1: new sessions are refused" in above


def test_a_gateway_by_a_stale_snapshot_is_told_so(said: Callable[..., tuple[int, str]]) -> None:
    status, output = said({"/readyz": "ready (the snapshot is stale)"})
    assert status == 0
    assert "/v1: ready, by a stale snapshot" in output


def test_a_part_that_is_gone_is_an_error_with_the_way_to_start_it_again(
    said: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_dir, "_closed_ancestor", lambda path: None)
    run = tmp_path / "state" / "run"
    run.mkdir(parents=True)
    PidFile("redis", 0, Identity(1, 0, "another boot"), "", int(signal.SIGTERM), 2).write(run)
    status, output = said({})
    assert status == 1
    assert "processes: redis gone (`make up` starts what is gone)" in output
    assert "/v1: ready\n" in output


def test_a_sidecar_of_an_older_version_is_told_so(said: Callable[..., tuple[int, str]]) -> None:
    older = {key: value for key, value in FLEET.items() if key not in {"models", "alerts"}}
    status, output = said({"/api/fleet": older})
    assert status == 0
    assert "tells no levels or alerts; `make up` renews it" in output
