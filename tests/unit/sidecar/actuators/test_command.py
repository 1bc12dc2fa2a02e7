"""Programs of the host as an actuator, run for real."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from sidecar.actuators.actuator import Action, ActuationError, Order
from sidecar.actuators.command import CommandDriver
from tokenweir.config.actuators import CommandConfig


def order(action="restart", *arguments, reason=""):
    return Order("1", "gpu-a", Action(action), arguments, reason)


def driver(tmp_path, timeout_s=10.0, **members):
    return CommandDriver(CommandConfig(**members), tmp_path, timeout_s)


def script(text):
    return [sys.executable, "-c", text]


async def test_a_program_runs_in_the_configurations_folder(tmp_path):
    made = driver(tmp_path, restart=["touch", "restarted"])
    assert await made.act(order()) == "ran touch restarted"
    assert (tmp_path / "restarted").exists()


async def test_no_shell_reads_the_words(tmp_path):
    await driver(tmp_path, restart=["touch", "a b; touch c", "$HOME"]).act(order())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["$HOME", "a b; touch c"]


async def test_without_a_restart_it_is_stopped_and_started(tmp_path):
    write = "import sys; open('log', 'a').write(sys.argv[1])"
    made = driver(tmp_path, stop=[*script(write), "stop "], start=[*script(write), "start"])
    await made.act(order())
    assert (tmp_path / "log").read_text() == "stop start"


async def test_new_arguments_stand_where_the_words_say(tmp_path):
    write = "import sys; open('log', 'w').write('|'.join(sys.argv[1:]))"
    made = driver(tmp_path, restart=["true"], apply=[*script(write), "vllm-a", "{arguments}", "end"])
    await made.act(order("apply", "--max-model-len", "4096 8"))
    assert (tmp_path / "log").read_text() == "vllm-a|--max-model-len|4096 8|end"


async def test_a_program_knows_what_it_is_run_for_and_not_the_sidecars_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENWEIR_ADMIN__TOKEN", "secret")
    monkeypatch.setenv("KEPT", "yes")
    write = "import json, os; json.dump(dict(os.environ), open('env', 'w'))"
    await driver(tmp_path, restart=script(write)).act(order(reason="out of memory"))
    seen = json.loads((tmp_path / "env").read_text())
    assert (seen["TOKENWEIR_BACKEND"], seen["TOKENWEIR_ACTION"], seen["TOKENWEIR_REASON"]) == (
        "gpu-a",
        "restart",
        "out of memory",
    )
    assert seen["KEPT"] == "yes"
    assert "TOKENWEIR_ADMIN__TOKEN" not in seen


async def test_a_failure_tells_the_status_and_the_last_words(tmp_path):
    failing = script(
        "import sys; print('x' * 9999); print('unit vllm-a not found', file=sys.stderr); sys.exit(5)"
    )
    with pytest.raises(ActuationError, match=r"(?s)status 5: .*unit vllm-a not found$"):
        await driver(tmp_path, restart=failing).act(order())


async def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ActuationError, match="no-such-program cannot be run: No such file"):
        await driver(tmp_path, restart=["no-such-program"]).act(order())


async def test_an_action_without_a_program_says_so(tmp_path):
    with pytest.raises(ActuationError, match="no program is configured to stop it"):
        await driver(tmp_path, restart=["true"]).act(order("stop"))


async def test_a_program_that_outlasts_its_time_is_ended_with_what_it_started(tmp_path):
    lasting = ["sh", "-c", "sleep 60 & echo $! > child; wait"]
    with pytest.raises(ActuationError, match="did not end within"):
        await driver(tmp_path, timeout_s=0.5, restart=lasting).act(order())
    child = (tmp_path / "child").read_text().strip()
    until = time.monotonic() + 30
    while _alive(child):
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


async def test_a_server_left_in_the_background_does_not_hold_the_action_up(tmp_path):
    began = time.monotonic()
    await driver(tmp_path, restart=["sh", "-c", "sleep 30 & exit 0"]).act(order())
    assert time.monotonic() - began < 15


def test_a_dry_run_says_what_would_run(tmp_path):
    made = driver(tmp_path, restart=["systemctl", "restart", "vllm a"])
    assert made.describe(order()) == "run systemctl restart 'vllm a'"
    assert made.describe(order("stop")).startswith("do nothing: no program")
