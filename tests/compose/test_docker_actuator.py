"""A real Docker engine: a container that the kernel kills for memory is seen and started again; others get
other arguments, or stay what they were."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from sidecar.actuators.actuator import Action, ActuationError, Order
from sidecar.actuators.docker_engine import DockerDriver
from sidecar.actuators.recreate import NEXT, PREVIOUS
from sidecar.telemetry.docker_watch import DockerWatch
from sidecar.telemetry.readings import Record
from tokenweir.config.actuators import DockerConfig

pytestmark = [pytest.mark.compose, pytest.mark.timeout(120)]

IMAGE = "python:3.13-slim-trixie"
MEMORY = "64m"

ENGINE = """
import http.server, sys
class Engine(http.server.BaseHTTPRequestHandler):
    held = []
    def do_GET(self):
        if self.path == "/fill":
            while True:
                self.held.append(bytearray(b"x") * 1_000_000)
        body = " ".join(sys.argv[1:]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.HTTPServer(("0.0.0.0", 8000), Engine).serve_forever()
"""
"""Answers with its own arguments; `/fill` takes memory until there is none."""


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def container(engine: docker.DockerClient) -> Iterator[Any]:
    """An engine in a container with little memory, a volume and a network alias."""
    name = f"tokenweir-test-{secrets.token_hex(4)}"
    network = engine.networks.create(name)
    made = engine.containers.create(
        IMAGE,
        ["first"],
        name=name,
        entrypoint=["python", "-u", "-c", ENGINE],
        mem_limit=MEMORY,
        memswap_limit=MEMORY,
        ports={"8000/tcp": ("127.0.0.1", None)},
        network=name,
        labels={"kept": "yes"},
        volumes=["/data"],
    )
    network.disconnect(made)
    network.connect(made, aliases=["engine-alias"])
    made.start()
    yield made
    for left in engine.containers.list(all=True, filters={"name": name}):
        left.remove(force=True, v=True)
    network.remove()


@pytest.fixture
async def watched(container: Any) -> AsyncIterator[Callable[[], Any]]:
    """The container's reading, kept by a watch."""
    record, changes = Record(), asyncio.Event()
    watch = DockerWatch(DockerConfig(container=container.name), Path(), lambda _: changes.set())
    watch.set_members({"a": (record, container.name)})
    task = asyncio.create_task(watch.run())
    yield lambda: record.container
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what is awaited happens in Docker
            await asyncio.sleep(0.02)


def driver(container: Any, container_name: str = "") -> DockerDriver:
    return DockerDriver(DockerConfig(container=container_name or container.name, grace="1s"), Path())


def order(action: str, *arguments: str) -> Order:
    return Order("1", "a", Action(action), arguments)


async def ask(container: Any, path: str = "/") -> str:
    """What the engine in the container answers, once it does."""
    async with asyncio.timeout(15):
        while True:
            container.reload()
            ports = container.ports.get("8000/tcp")
            if ports:
                reading = await asyncio.create_subprocess_exec(
                    "curl", "-sS", "--max-time", "10", f"http://127.0.0.1:{ports[0]['HostPort']}{path}",
                    stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                )  # fmt: skip
                text, _ = await reading.communicate()
                if reading.returncode == 0 or path != "/":
                    return text.decode()
            await asyncio.sleep(0.1)


async def test_a_container_killed_for_memory_is_seen_and_restarted(
    container: Any, watched: Callable[[], Any]
) -> None:
    await until(lambda: watched() is not None and watched().running)
    assert await ask(container) == "first"
    assert watched().exit_code is None
    await ask(container, "/fill")
    await until(lambda: not watched().running)
    reading = watched()
    assert (reading.out_of_memory, reading.oom_killed, reading.exit_code) == (True, True, 137)
    assert reading.oom_at is not None
    text = await driver(container).act(order("restart"))
    assert text == f"container {container.name} restarted (it had ended out of memory, status 137)"
    await until(lambda: watched().running)
    assert await ask(container) == "first"
    assert watched().out_of_memory
    assert watched().ended_at == reading.ended_at


async def test_a_stop_is_no_want_of_memory(container: Any, watched: Callable[[], Any]) -> None:
    await until(lambda: watched() is not None and watched().running)
    assert await driver(container).act(order("stop")) == f"container {container.name} stopped"
    await until(lambda: not watched().running)
    assert (watched().ordered, watched().out_of_memory) == (True, False)
    assert await driver(container).act(order("stop")) == f"container {container.name} is stopped already"
    await driver(container).act(order("start"))
    await until(lambda: watched().running)
    assert "runs already" in await driver(container).act(order("start"))


async def test_a_paused_container_is_restarted(container: Any) -> None:
    await ask(container)
    container.pause()
    await driver(container).act(order("restart"))
    assert await ask(container) == "first"


async def test_other_arguments_recreate_the_container_like_it_was(
    container: Any, engine: docker.DockerClient, watched: Callable[[], Any]
) -> None:
    await ask(container)
    before = engine.api.inspect_container(container.name)
    await driver(container).act(order("apply", "second", "--fast"))
    again = engine.containers.get(container.name)
    assert await ask(again) == "second --fast"
    after = engine.api.inspect_container(container.name)
    assert after["Id"] != before["Id"]
    assert after["HostConfig"]["Memory"] == before["HostConfig"]["Memory"] == 64 * 1024**2
    assert after["Config"]["Labels"]["kept"] == "yes"
    assert after["Mounts"][0]["Name"] == before["Mounts"][0]["Name"]
    assert "engine-alias" in after["NetworkSettings"]["Networks"][container.name]["Aliases"]
    names = [one.name for one in engine.containers.list(all=True, filters={"name": container.name})]
    assert names == [container.name]
    await until(lambda: watched().running)


async def test_a_recreation_that_does_not_start_leaves_what_was(
    container: Any, engine: docker.DockerClient
) -> None:
    name = container.name
    container.remove(force=True)
    # Without an entry point the arguments are the whole program: here one that is not there.
    words = ["python", "-u", "-c", ENGINE, "first"]
    container = engine.containers.run(
        IMAGE, words, name=name, detach=True, ports={"8000/tcp": ("127.0.0.1", None)}
    )
    assert await ask(container) == "first"
    with pytest.raises(ActuationError, match=r"did not start: .*no-such-program.*; the one before runs"):
        await driver(container).act(order("apply", "no-such-program"))
    assert await ask(container) == "first"
    names = [one.name for one in engine.containers.list(all=True, filters={"name": name})]
    assert names == [name]


async def test_a_recreation_that_was_cut_off_between_two_names_is_undone_by_the_next_action(
    container: Any, engine: docker.DockerClient
) -> None:
    name = container.name
    container.stop(timeout=1)
    container.rename(name + PREVIOUS)
    engine.containers.create(IMAGE, ["second"], name=name + NEXT)
    text = await driver(engine.containers.get(container.id), container_name=name).act(order("restart"))
    assert text.endswith("a change of it had been cut off, the one before was brought back")
    assert await ask(engine.containers.get(name)) == "first"
    names = [one.name for one in engine.containers.list(all=True, filters={"name": name})]
    assert names == [name]


async def test_a_container_that_goes_with_its_end_is_not_recreated(
    container: Any, engine: docker.DockerClient
) -> None:
    name = container.name
    container.remove(force=True)
    lasting = engine.containers.run(IMAGE, ["sleep", "60"], name=name, detach=True, auto_remove=True)
    with pytest.raises(ActuationError, match="--rm"):
        await driver(lasting).act(order("apply", "sleep", "61"))
    lasting.reload()
    assert lasting.status == "running"


async def test_a_container_that_is_not_there_is_named_with_those_that_are(container: Any) -> None:
    missing = DockerDriver(DockerConfig(container="no-such-container"), Path())
    with pytest.raises(ActuationError, match=rf"no container 'no-such-container'; it has.*{container.name}"):
        await missing.act(order("restart"))


async def test_an_engine_that_is_away_is_said() -> None:
    away = DockerDriver(DockerConfig(container="x", host="unix:///no/docker.sock"), Path())
    with pytest.raises(ActuationError, match="does not answer"):
        await away.act(order("restart"))
    away = DockerDriver(DockerConfig(container="x", host="tcp://127.0.0.1:9"), Path())
    with pytest.raises(ActuationError, match="does not answer: Connection refused"):
        await away.act(order("restart"))
