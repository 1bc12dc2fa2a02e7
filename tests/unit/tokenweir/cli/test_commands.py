"""The commands that need nothing to run."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tokenweir.cli import app
from tokenweir.config.loading import parse
from tokenweir.config.models import hash_key
from tokenweir.stack import launch, state_dir
from tokenweir.stack.identity import identify
from tokenweir.stack.process import PidFile
from tokenweir.stack.settings import keep, read


def run(*arguments: str, text: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), input=text)
    return result.exit_code, result.output


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state_dir, "_closed_ancestor", lambda path: None)

    def put(text: str) -> str:
        (tmp_path / "tokenweir.yaml").write_text(text)
        return str(tmp_path / "tokenweir.yaml")

    return put


def test_the_command_line_starts_without_what_only_some_commands_need() -> None:
    slow = "{'redis', 'jinja2', 'fastapi', 'numpy'}"
    code = f"import sys, tokenweir.cli; print({slow} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        == "set()\n"
    )


def test_a_full_disk_is_told_with_the_file_and_what_to_do(write, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tokenweir.atomic_file.os.fsync", full)
    status, output = run("render", "--config", write("backends: [http://10.0.0.1:8000]\n"))
    assert status == 1
    assert "No space left on device; free some space there, or set another `state_dir`" in output
    assert "var" in output.partition(": No space")[0], "the file is named"


def test_key_prints_a_new_key_and_lines_for_the_configuration_that_know_only_its_hash() -> None:
    status, output = run("key", "team-a")
    key = output.splitlines()[0].removeprefix("key:").strip()
    assert status == 0
    assert len(key) > 30
    document = output.split("In tokenweir.yaml:")[1]
    config = parse(document, "output")
    assert (config.keys[0].id, config.keys[0].sha256) == ("team-a", hash_key(key))
    assert key not in document


def test_key_never_prints_the_same_key_twice() -> None:
    assert run("key")[1] != run("key")[1]


def test_key_can_hash_a_key_that_exists() -> None:
    status, output = run("key", "team-a", "--stdin", text="sk-mine\n")
    assert status == 0
    assert hash_key("sk-mine") in output
    assert "sk-mine" not in output


def test_schema_prints_the_schema_of_the_configuration(root: Path) -> None:
    status, output = run("schema")
    assert status == 0
    assert json.loads(output) == json.loads((root / "docs/tokenweir.schema.json").read_text())


def test_check_sums_up_a_configuration_that_is_in_order(write) -> None:
    status, output = run("check", "--config", write("backends: [http://10.0.0.11:8000]"))
    assert status == 0
    assert "1 backend, policy predictive, 0 keys, models (asked of the backends)" in output
    assert len(output.splitlines()) == 1, "not broken into lines of some width, and without notes"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("policy: hybrid", ["`backends` is empty", "backends: [http://10.0.0.11:8000]"]),
        ("backends: [{url: 'http://a', gpu: T5}]", ["`backends[0].gpu`", "unknown GPU 'T5'", "RTX-4090"]),
        ("{backends: [{url: 'http://a', models: [m]}], default_model: n}", ["`default_model`", "'n'", "m"]),
        (
            "{backends: [{url: 'http://a', models: [m]}], paths: {/v1/audio/: whisper}}",
            ["`paths./v1/audio/`", "'whisper'", "they have m"],
        ),
        (
            "{backends: [{url: 'http://a', models: [m]}], "
            f"keys: [{{id: k, sha256: {hash_key('k')}, models: [m, n]}}]}}",
            ["`keys[0].models`", "'n'", "they have m"],
        ),
        ("{backends: [http://a], models: [{name: m, facts: lama}]}", ["`models[0].facts`", "'lama'"]),
        (
            "{backends: [{url: 'http://a', models: [m]}], models: [{name: m, fallback: small}]}",
            ["`models[0].fallback`", "role `fallback`", "'small'"],
        ),
        (
            "{backends: [http://a], listen: {address: 0.0.0.0}}",
            ["`listen.address` 0.0.0.0", "there are no `keys`", "port 8080", "tokenweir key"],
        ),
        ("{backends: [http://a], listen: {cors_origins: ['*']}}", ["`listen.cors_origins`", "port 8080"]),
        ("backends: [{url: 'http://a', precision: fp9}]", ["`backends[0].precision`", "'fp9'", "fp16, fp32"]),
    ],
)
def test_check_notes_what_is_hardly_meant(write, text: str, words: list[str]) -> None:
    status, output = run("check", "--config", write(text))
    assert status == 0
    assert all(word in output.partition("note: ")[2] for word in words), output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{listen: {port: 8081}}", ["`admin.port`", "8081", "`listen.port`"]),
        ("{admin: {port: 9080}}", ["`admin.port`", "9080", "`listen.metrics_port`"]),
        ("{redis: {port: 8080}}", ["`redis.port`", "8080", "`listen.port`"]),
        (
            "{backends: [{url: 'http://127.0.0.1:8080', gpu: T4, models: [m], emulated: true}]}",
            ["`backends[0].url`", "8080", "`listen.port`"],
        ),
        ("{listen: {port: 65000}}", ["`listen.metrics_port`", "66000 is no port"]),
    ],
)
@pytest.mark.parametrize("command", ["check", "up"])
def test_a_port_that_two_parts_would_take_is_named_with_both_keys(
    write, command: str, text: str, words: list[str]
) -> None:
    status, output = run(command, "--config", write(text))
    assert status == 1
    assert all(word in output for word in words), output


def test_check_names_the_wrong_key_and_ends_with_status_1(write) -> None:
    status, output = run("check", "--config", write("backends: [http://10.0.0.11:8000]\npolcy: hybrid"))
    assert status == 1
    assert "polcy" in output
    assert "did you mean `policy`" in output


def test_check_names_each_file_that_is_missing(write) -> None:
    text = "backends: [{url: 'https://gpu', api_key_file: secrets/gpu}]\nkeys: [{id: a, key_file: secrets/a}]"
    status, output = run("check", "--config", write(text))
    assert status == 1
    assert "`backends[0].api_key_file`: no such file" in output
    assert "`keys[0].key_file`: no such file" in output


@pytest.mark.parametrize("command", ["check", "up"])
def test_secrets_that_cannot_be_taken_are_named_before_anything_starts(
    write, tmp_path: Path, command: str
) -> None:
    (tmp_path / "short").write_text("secret\n")
    (tmp_path / "empty").write_text("\n")
    text = "backends: [http://a]\nadmin: {token_file: short}\nkeys: [{id: a, key_file: empty}]"
    status, output = run(command, "--config", write(text))
    assert status == 1
    assert f"`admin.token_file`: {tmp_path}/short: the token needs at least 16 characters" in output
    assert f"`keys[0].key_file`: {tmp_path}/empty is empty" in output
    assert "starting" not in output


def test_an_address_for_other_machines_needs_no_note_where_there_are_keys(write) -> None:
    text = f"backends: [http://a]\nlisten: {{address: 0.0.0.0}}\nkeys: [{{id: a, sha256: {hash_key('k')}}}]"
    status, output = run("check", "--config", write(text))
    assert status == 0
    assert "note" not in output


def test_an_interrupted_up_says_what_runs_on(write, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tokenweir.stack.launch.bring_up", interrupted)
    status, output = run("up", "--config", write("backends: [http://127.0.0.1:9]"))
    assert status == 130
    assert "what has been started runs on; `make up` goes on from here, `make down` ends it" in output
    assert "Traceback" not in output


def test_the_shipped_configuration_is_in_order(root: Path) -> None:
    assert run("check", "--config", str(root / "tokenweir.yaml"))[0] == 0
    assert run("check", "--config", str(root / "deploy/compose/tokenweir.yaml"))[0] == 0


def test_status_says_that_nothing_runs(write) -> None:
    text = "backends: [http://127.0.0.1:9]\nlisten: {port: 1}\nadmin: {port: 2}"
    status, output = run("status", "--config", write(text))
    assert status == 1
    assert "nothing was started" in output
    assert "no answer" in output


def test_status_says_what_is_wrong_in_a_broken_configuration_and_still_shows_what_runs(write) -> None:
    path = write("backends: [http://127.0.0.1:9]\nlisten: {port: 1}\nadmin: {port: 2}")
    settings = read(Path(path))
    settings.state.create()
    identity = identify(os.getpid())
    assert identity is not None
    PidFile("one", 0, identity, "", int(signal.SIGTERM), 2).write(settings.state.run)
    keep(settings)
    write("backends: [http://127.0.0.1:9]\nlisten: {prot: 1}")
    status, output = run("status", "--config", path)
    assert status == 1
    assert "`listen.prot` is not a key of the configuration; did you mean `port`?" in output
    assert "configuration that `up` applied last" in output
    assert f"processes: one {os.getpid()}" in output
    assert "gateway http://127.0.0.1:1/v1: not ready" in output


def test_status_of_a_broken_configuration_that_was_never_applied_says_what_is_wrong(write) -> None:
    status, output = run("status", "--config", write("backends: ["))
    assert status == 1
    assert "not valid YAML" in output
    assert "nothing was started" in output


def test_down_of_nothing_is_no_error(write) -> None:
    status, output = run("down", "--config", write("backends: [http://127.0.0.1:9]"))
    assert status == 0
    assert "nothing runs" in output


@pytest.fixture
def another_s_part(write, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that `up` started for tokenweir.yaml beside which the tests have files of their own."""
    path = write("backends: [http://127.0.0.1:9]")
    state = read(Path(path)).state
    state.create()
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    ) as part:
        identity = identify(part.pid)
        assert identity is not None
        PidFile("one", 0, identity, "", int(signal.SIGTERM), 2).write(state.run)
        launch.claim(state.run, Path(path).resolve())
        keep(read(Path(path)))
        yield part
        part.kill()


@pytest.mark.parametrize("text", [None, "lissen: 1", "backends: [", "backends: [http://127.0.0.1:9]"])
def test_down_of_another_configuration_in_the_same_folder_stops_nothing(
    another_s_part: subprocess.Popen[bytes], tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "second.yaml").write_text(text)
    status, output = run("down", "--config", str(tmp_path / "second.yaml"))
    assert status == 1
    assert f"make down CONFIG={tmp_path / 'tokenweir.yaml'}" in output
    assert another_s_part.poll() is None


def test_down_finds_the_state_folder_of_a_configuration_that_has_an_error(
    another_s_part: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "second.yaml").write_text("state_dir: 'other'  # of its own\nlissen: 1")
    status, output = run("down", "--config", str(tmp_path / "second.yaml"))
    assert status == 1
    assert f"nothing runs from {tmp_path / 'other'}" in output
    assert another_s_part.poll() is None


def test_status_of_a_file_that_is_not_there_shows_no_other_s_fleet(
    another_s_part: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    status, output = run("status", "--config", str(tmp_path / "nofile.yaml"))
    assert status == 1
    assert "no such file" in output
    assert "nothing was started by `up` for" in output
    assert "applied last" not in output


def test_down_stops_what_runs_though_the_configuration_is_broken_by_now(write, tmp_path: Path) -> None:
    path = write("backends: [http://127.0.0.1:9]")
    state = read(Path(path)).state
    state.create()
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    ) as part:
        identity = identify(part.pid)
        assert identity is not None
        PidFile("one", 0, identity, "", int(signal.SIGTERM), 2).write(state.run)
        write("backends: [")
        threading.Thread(target=part.wait).start()
        status, output = run("down", "--config", path)
        assert status == 0
        assert "not valid YAML" in output
        assert part.wait(timeout=30) == -signal.SIGTERM
