"""`model/publication.py` and the commands, on a real Redis under the ACL that is shipped."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import redis
import yaml

from model.cli import FOLDER, LOCK, save, uninterrupted
from model.evaluation import Scores
from model.publication import KEPT, Publication, RollbackError
from model.training_run import Trained
from tests.integration.servers import ROOT, RedisServer
from tokenweir.contract import names
from tokenweir.stack.settings import read

PASSWORD = "only-for-this-test"


def trained(version: str) -> Trained:
    """What came of a training, as far as it is kept in files."""
    nothing = np.zeros(0)
    scores = Scores(**{field.name: 0 for field in dataclasses.fields(Scores)})
    return Trained(version, "{}", {}, scores, None, scores, {}, nothing, nothing, b"", scores)


def document(version: str) -> str:
    return json.dumps({"schema": 1, "version": version, "checksum": "0" * 16, "payload": "{}"})


@pytest.fixture
def publication(redis_server: RedisServer) -> Publication:
    """With the rights of the shipped user `sidecar`."""
    client = redis_server.client()
    for line in (ROOT / "deploy/redis/users.acl").read_text().splitlines():
        if line.startswith("user sidecar on "):
            rules = [rule for rule in line.split()[3:] if not rule.startswith("#")]
            client.execute_command("ACL", "SETUSER", "sidecar", "on", f">{PASSWORD}", *rules)
    return Publication(redis.Redis(port=redis_server.port, username="sidecar", password=PASSWORD, protocol=2))


def test_nothing_is_in_service_at_first(publication: Publication) -> None:
    assert publication.current() is None
    assert publication.in_service() is None
    with pytest.raises(RollbackError, match="no earlier model"):
        publication.roll_back()


def test_a_published_model_is_in_service_and_the_one_before_is_kept(
    publication: Publication, redis_server: RedisServer
) -> None:
    for version in ("a", "b"):
        publication.publish(version, document(version))
    current = publication.current()
    assert current is not None
    assert (current.version, current.previous) == ("b", ["a"])
    service = publication.in_service()
    assert service is not None
    assert (service.version, service.payload) == ("b", {})
    assert redis_server.client().exists(names.PREDICTOR_MODEL + "a")


def test_going_back_goes_on_to_the_ones_before(publication: Publication) -> None:
    for version in ("a", "b", "c"):
        publication.publish(version, document(version))
    assert [publication.roll_back(), publication.roll_back()] == ["b", "a"]
    with pytest.raises(RollbackError):
        publication.roll_back()


def test_old_models_are_removed(publication: Publication, redis_server: RedisServer) -> None:
    for number in range(KEPT + 4):
        publication.publish(f"v{number}", document(f"v{number}"))
    kept = redis_server.client().keys(names.PREDICTOR_MODEL + "*")
    assert len(kept) == KEPT + 1


def test_publishing_a_version_again_does_not_make_it_its_own_predecessor(publication: Publication) -> None:
    for version in ("a", "b", "b"):
        publication.publish(version, document(version))
    current = publication.current()
    assert current is not None
    assert current.previous == ["a"]


def test_a_model_that_was_removed_cannot_be_gone_back_to(
    publication: Publication, redis_server: RedisServer
) -> None:
    for version in ("a", "b"):
        publication.publish(version, document(version))
    redis_server.client().delete(names.PREDICTOR_MODEL + "a")
    with pytest.raises(RollbackError, match="gone"):
        publication.roll_back()
    current = publication.current()
    assert current is not None
    assert current.version == "b"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "model", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def config(tmp_path: Path, redis_server: RedisServer, publication: Publication) -> Path:
    folder = tmp_path / "stack"
    folder.mkdir()
    (folder / "password").write_text(PASSWORD)
    members = {
        "redis": {
            "host": "127.0.0.1",
            "port": redis_server.port,
            "sidecar_user": "sidecar",
            "sidecar_password_file": "password",
        }
    }
    path = folder / "tokenweir.yaml"
    path.write_text(yaml.safe_dump(members))
    return path


def lines(path: Path, count: int) -> Path:
    """Requests whose length is told by one word of theirs."""
    rows = []
    for number in range(count):
        long = number % 2 == 0
        text = f"{'essay' if long else 'briefly'} about topic{number % 150} number{number % 7}"
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        rows.append(json.dumps({"body": body, "output": (500 if long else 20) + number % 13, "time": number}))
    path.write_text("\n".join(rows))
    return path


@pytest.mark.timeout(300)
def test_training_from_a_file_reports_and_publishes_and_rolls_back(
    config: Path, publication: Publication, tmp_path: Path
) -> None:
    data = str(lines(tmp_path / "data.jsonl", 1200))
    done = run("train", "--config", str(config), "--data", data)
    assert done.returncode == 0, done.stdout + done.stderr
    first = publication.current()
    assert first is not None
    assert f"published {first.version}" in done.stdout
    told = re.search(r"report and calibration plot: (\S+)", done.stdout)
    assert told is not None
    folder = Path(told[1])
    assert (folder / "calibration.png").read_bytes()[:4] == b"\x89PNG"
    figures = json.loads((folder / "report.json").read_text())
    assert figures["model"]["pinball"] < 0.5 * figures["running_figures"]["pinball"]
    again = run("train", "--config", str(config), "--data", data)
    assert again.returncode == 0, again.stdout + again.stderr
    back = run("rollback", "--config", str(config))
    assert back.returncode == 0, back.stderr
    assert f"{first.version} is in service again" in back.stdout


@pytest.mark.timeout(300)
def test_a_model_that_is_worse_is_published_only_by_force(
    config: Path, publication: Publication, tmp_path: Path
) -> None:
    good = lines(tmp_path / "good.jsonl", 1200)
    assert run("train", "--config", str(config), "--data", str(good)).returncode == 0
    before = publication.current()
    assert before is not None
    # In the older rows the words say the opposite of what they say in those that the model is judged by.
    rows = [json.loads(line) for line in good.read_text().splitlines()]
    for number, row in enumerate(rows[: len(rows) * 4 // 5]):
        row["output"] = 20 if number % 2 == 0 else 500
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join(json.dumps(row) for row in rows))
    refused = run("train", "--config", str(config), "--data", str(bad))
    assert refused.returncode == 1
    assert "not published: the new model is worse than" in refused.stderr
    current = publication.current()
    assert current is not None
    assert current.version == before.version
    forced = run("train", "--config", str(config), "--data", str(bad), "--force")
    assert forced.returncode == 0, forced.stderr


def test_a_file_with_wrong_columns_is_named_with_what_is_missing(config: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "x", "tokens": 3}\n')
    done = run("train", "--config", str(config), "--data", str(path))
    assert done.returncode == 1
    assert "has the columns prompt, tokens; missing: body, output" in done.stderr


def test_without_redis_it_says_what_to_do(config: Path, redis_server: RedisServer) -> None:
    redis_server.stop()
    done = run("rollback", "--config", str(config))
    assert done.returncode == 1
    assert "Redis" in done.stderr


def test_a_training_waits_for_one_that_runs(config: Path, tmp_path: Path) -> None:
    folder = read(config).state.root / FOLDER
    folder.mkdir(parents=True)
    data = str(lines(tmp_path / "data.jsonl", 1200))
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            [sys.executable, "-m", "model", "train", "--config", str(config), "--data", data],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert waiting.stdout is not None
        assert "another training runs" in waiting.stdout.readline()
        assert waiting.poll() is None
    said, _ = waiting.communicate(timeout=120)
    assert "published" in said


INTERRUPTED = "interrupted; nothing was published"


def begin(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "model", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupted_training_publishes_nothing_and_says_so(
    config: Path, publication: Publication, tmp_path: Path
) -> None:
    data = str(lines(tmp_path / "data.jsonl", 1200))
    training = begin("train", "--config", str(config), "--data", data)
    assert training.stdout is not None
    while not training.stdout.readline().startswith("  2 of 12"):
        assert training.poll() is None
    training.send_signal(signal.SIGINT)
    _, told = training.communicate(timeout=120)
    assert (training.returncode, told.strip()) == (130, INTERRUPTED)
    assert publication.current() is None
    assert [path.name for path in (read(config).state.root / FOLDER).iterdir()] == [LOCK]


def test_a_training_that_waits_for_another_can_be_interrupted(config: Path) -> None:
    folder = read(config).state.root / FOLDER
    folder.mkdir(parents=True)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = begin("train", "--config", str(config))
        assert waiting.stdout is not None
        assert "another training runs" in waiting.stdout.readline()
        waiting.send_signal(signal.SIGINT)
        _, told = waiting.communicate(timeout=120)
    assert (waiting.returncode, told.strip()) == (130, INTERRUPTED)


def test_what_has_begun_to_be_published_is_published_whatever_the_interrupt() -> None:
    heard = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is heard


def test_of_many_trainings_the_files_of_the_latest_stay(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("model.calibration.plot", lambda *_: None)
    made = [f"2026120{day}T000000Z-00000000" for day in range(1, KEPT + 4)]
    for version in made:
        save(trained(version), tmp_path)
    assert sorted(path.stem for path in tmp_path.glob("2*.json")) == made[-KEPT - 1 :]
    assert json.loads((tmp_path / "report.json").read_text())["version"] == made[-1]
