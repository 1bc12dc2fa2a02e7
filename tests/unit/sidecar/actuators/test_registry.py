"""The actuators and weights of a fleet, made of its configuration."""

from __future__ import annotations

import asyncio
import os

import pytest
from aiohttp import web

from sidecar.actuators.registry import Actuators
from tokenweir.config.actuators import ActuationConfig
from tokenweir.config.models import BackendConfig


@pytest.fixture
def actuators(tmp_path):
    return Actuators(tmp_path, tmp_path / "var", ActuationConfig())


def backend(name="a", **members):
    return BackendConfig.model_validate({"id": name, "url": f"http://{name}:1", **members})


TOUCH = {"command": {"restart": ["touch", "restarted"]}}
WAITS = {"command": {"restart": ["sh", "-c", "until test -e go; do sleep 0.02; done"]}}


def test_each_kind_is_made(actuators, tmp_path):
    (tmp_path / "secret").write_text("a-plain-secret-of-thirty-chars")
    actuators.set_backends(
        [
            backend("a", actuator={"docker": "vllm"}),
            backend("b", actuator={"kubernetes": {"pod": "vllm-0"}}),
            backend("c", actuator=TOUCH),
            backend("d", actuator={"webhook": {"url": "http://ops", "secret_file": "secret"}}),
            backend("e"),
        ],
        ActuationConfig(),
    )
    kinds = {name: kind for name, (kind, _) in actuators.kinds().items()}
    assert kinds == {"a": "docker", "b": "kubernetes", "c": "command", "d": "webhook"}
    assert actuators.of("e") is None


async def test_an_action_is_done_and_written_down(actuators, tmp_path):
    actuators.set_backends([backend(actuator=TOUCH)], ActuationConfig())
    outcome = await actuators.of("a").restart("it crashed")
    assert outcome.ok
    assert (tmp_path / "restarted").exists()
    assert [entry.stage for entry in actuators.audit.entries()] == ["done", "begun"]


@pytest.mark.parametrize("everywhere", [True, False])
async def test_a_dry_run_is_of_one_backend_or_of_all(actuators, tmp_path, everywhere):
    own = TOUCH if everywhere else {**TOUCH, "dry_run": True}
    actuators.set_backends([backend(actuator=own)], ActuationConfig(dry_run=everywhere))
    outcome = await actuators.of("a").restart()
    assert outcome.dry_run
    assert not (tmp_path / "restarted").exists()


def test_an_actuator_goes_on_while_its_configuration_is_the_same(actuators):
    actuators.set_backends([backend(actuator=TOUCH)], ActuationConfig())
    before = actuators.of("a")
    actuators.set_backends([backend(actuator=TOUCH, weight=2)], ActuationConfig(dry_run=True))
    assert actuators.of("a") is before
    assert before.dry_run
    actuators.set_backends([backend(actuator={"docker": "vllm"})], ActuationConfig())
    assert actuators.of("a") is not before
    actuators.set_backends([], ActuationConfig())
    assert actuators.of("a") is None


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "No such file"), ("short", "at least 24 bytes"), ("", "empty")]
)
def test_a_secret_that_cannot_be_used_is_named(actuators, tmp_path, content, problem):
    if content is not None:
        (tmp_path / "secret").write_text(content)
    wrong = backend(actuator={"webhook": {"url": "http://ops", "secret_file": "secret"}})
    actuators.set_backends([wrong, backend("b", actuator=TOUCH)], ActuationConfig())
    assert actuators.of("a") is None
    assert actuators.of("b") is not None
    assert actuators.problems["a"].startswith("`backends: a: actuator: webhook: secret_file`")
    assert problem in actuators.problems["a"]
    (tmp_path / "secret").write_text("a-plain-secret-of-thirty-chars")
    actuators.set_backends([wrong], ActuationConfig())
    assert actuators.of("a") is not None
    assert actuators.problems == {}


async def test_an_agents_token_that_cannot_be_read_is_named(actuators):
    weights = {"path": "/models/x", "agent": "http://gpu:9401", "token_file": "gone"}
    actuators.set_backends([backend(weights=weights)], ActuationConfig())
    actuators.prefetches.begin("a")
    assert "backends: a: weights: token_file" in (await until_read(actuators)).problem


async def until_read(actuators, name="a"):
    async with asyncio.timeout(5):
        while True:
            progress = actuators.prefetches.progress().get(name)
            if progress is not None and progress.finished:
                return progress
            await asyncio.sleep(0.01)


async def test_weights_are_read_while_an_engine_starts_and_not_while_it_stops(actuators, tmp_path):
    (tmp_path / "model.gguf").write_bytes(os.urandom(10_000))
    command = {"command": {"restart": ["true"], "start": ["true"], "stop": ["true"]}}
    actuators.set_backends([backend(actuator=command, weights="model.gguf")], ActuationConfig())
    await actuators.of("a").stop()
    assert actuators.prefetches.progress() == {}
    await actuators.of("a").start()
    assert (await until_read(actuators)).done_bytes == 10_000
    await actuators.close()


async def test_weights_can_be_read_before_a_start(actuators, tmp_path):
    (tmp_path / "model.gguf").write_bytes(os.urandom(10_000))
    actuators.set_backends([backend(weights="model.gguf"), backend("b")], ActuationConfig())
    assert actuators.prefetches.begin("a")
    assert not actuators.prefetches.begin("b")
    assert (await until_read(actuators)).problem == ""


async def test_the_agent_reads_where_the_weights_are(actuators, tmp_path):
    (tmp_path / "agent.token").write_text("a-token-of-the-agent")
    asked = []

    async def answer(request):
        asked.append((request.method, request.headers["Authorization"]))
        done = 400 * len(asked)
        return web.json_response(
            {"files": 2, "total_bytes": 800, "done_bytes": done, "seconds": 0.1, "finished": done >= 800}
        )

    app = web.Application()
    app.router.add_route("*", "/prefetch", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    weights = {"path": "/models/x", "agent": url, "token_file": "agent.token"}
    actuators.set_backends([backend(weights=weights)], ActuationConfig())
    actuators.prefetches.begin("a")
    progress = await until_read(actuators)
    await runner.cleanup()
    assert (progress.files, progress.done_bytes, progress.problem) == (2, 800, "")
    assert asked == [("POST", "Bearer a-token-of-the-agent"), ("GET", "Bearer a-token-of-the-agent")]


async def test_an_agent_that_is_away_is_a_problem_told(actuators):
    weights = {"path": "/models/x", "agent": "http://127.0.0.1:9"}
    actuators.set_backends([backend(weights=weights)], ActuationConfig())
    actuators.prefetches.begin("a")
    assert "the agent http://127.0.0.1:9" in (await until_read(actuators)).problem


@pytest.mark.parametrize("removed", [True, False])
async def test_what_an_actuator_does_while_its_configuration_changes_keeps_the_next_one_waiting(
    actuators, tmp_path, removed
):
    actuators.set_backends([backend(actuator=WAITS)], ActuationConfig())
    under_way = asyncio.create_task(actuators.of("a").restart())
    await asyncio.sleep(0)
    if removed:
        actuators.set_backends([], ActuationConfig())
    actuators.set_backends([backend(actuator=TOUCH)], ActuationConfig())
    refused = await actuators.of("a").restart()
    assert not refused.ok
    assert "restart is under way" in refused.detail
    (tmp_path / "go").touch()
    assert (await under_way).ok
    assert (await actuators.of("a").restart()).ok
