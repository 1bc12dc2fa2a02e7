"""Level 3 for real: the kernel kills an engine's container for memory; the sidecar takes it out, restarts it
through Docker, and it is back in rotation, without a hand."""

from __future__ import annotations

import asyncio
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import docker
import pytest

from tests.integration.servers import free_port

pytestmark = [pytest.mark.compose, pytest.mark.timeout(120)]

IMAGE = "python:3.13-slim-trixie"
MEMORY = "64m"

ENGINE = """
import http.server, json
METRICS = '# TYPE vllm:num_requests_running gauge\\nvllm:num_requests_running 0\\n'
MODELS = json.dumps({"data": [{"id": "m", "owned_by": "vllm"}]})
PAGES = {"/health": "", "/metrics": METRICS, "/v1/models": MODELS}
class Engine(http.server.BaseHTTPRequestHandler):
    held = []
    def do_GET(self):
        if self.path == "/fill":
            while True:
                self.held.append(bytearray(b"x") * 1_000_000)
        self.answer(200 if self.path in PAGES else 404, PAGES.get(self.path, ""))
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        self.answer(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": 1}}))
    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Engine).serve_forever()
"""


@pytest.fixture
def container() -> Iterator[tuple[str, int]]:
    """An engine in a container with little memory: (name, port)."""
    client = docker.from_env()
    name, port = f"tokenweir-test-{secrets.token_hex(4)}", free_port()
    made = client.containers.run(
        IMAGE,
        ["python", "-u", "-c", ENGINE],
        name=name,
        detach=True,
        mem_limit=MEMORY,
        memswap_limit=MEMORY,
        ports={"8000/tcp": ("127.0.0.1", port)},
    )
    yield name, port
    made.remove(force=True)
    client.close()


def fill(port: int) -> None:
    """Have the engine take memory until the kernel ends it."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/fill", timeout=20)
    except (urllib.error.URLError, OSError):
        return


async def test_a_container_killed_for_memory_is_back_in_rotation(
    container: tuple[str, int], write_config: Any, start_sidecar: Any
) -> None:
    name, port = container
    backend = {"id": "a", "url": f"http://127.0.0.1:{port}", "actuator": {"docker": {"container": name}}}
    sidecar = await start_sidecar(write_config("one", backends=[backend]))

    async def seen() -> dict[str, Any]:
        answer: dict[str, Any] = (await sidecar.http.get("/api/backends/a")).json()
        return answer

    async def until(holds: Any, seconds: float = 40) -> dict[str, Any]:
        async with asyncio.timeout(seconds):
            while not holds(view := await seen()):  # noqa: ASYNC110 - it happens in Docker
                await asyncio.sleep(0.05)
        return view

    await until(lambda view: view["state"] == "ready" and "container_state" in view["measured"])
    await asyncio.to_thread(fill, port)
    await until(lambda view: view["state"] != "ready")
    view = await until(lambda view: view["state"] == "ready")
    assert view["measured"]["container_exit_code"]["value"] == 137
    actions = (await sidecar.http.get("/api/actions?backend=a")).json()["entries"]
    stages = [(entry["action"], entry["stage"]) for entry in actions]
    assert stages == [("restart", "done"), ("restart", "begun")]
    assert "out of memory" in actions[0]["reason"]
    assert actions[0]["detail"] == f"container {name} restarted (it had ended out of memory, status 137)"
