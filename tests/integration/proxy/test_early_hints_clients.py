"""Clients survive `103 Early Hints`: each is served as before."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import openai
import pytest
import requests
import urllib3

from tests.integration.proxy.gateway import Gateway
from tests.integration.proxy.test_early_hints import ASKS, MESSAGES, PLAIN
from tests.integration.servers import wait_until

CLIENTS = Path(__file__).resolve().parents[1] / "clients"
STREAMED = "t0t1t2"


def check(gateway: Gateway, answers: list[str]) -> None:
    assert answers == [PLAIN, STREAMED]
    wait_until(lambda: gateway.metric("tokenweir_early_hints_total") >= 2, what="two hints")


def test_openai_python(busy: Gateway) -> None:
    with openai.OpenAI(
        base_url=f"{busy.url}/v1", api_key="none", max_retries=0, default_headers=ASKS
    ) as client:
        plain = client.chat.completions.create(model="llama", messages=MESSAGES)
        stream = client.chat.completions.create(model="llama", messages=MESSAGES, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    check(busy, [plain.choices[0].message.content or "", text])


def streamed(text: str) -> str:
    """What a stream's events say."""
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])


def body(**members: Any) -> dict[str, Any]:
    return {"model": "llama", "messages": MESSAGES, **members}


def test_httpx(busy: Gateway) -> None:
    with httpx.Client(base_url=busy.url, headers=ASKS, timeout=30, trust_env=False) as client:
        plain = client.post("/v1/chat/completions", json=body()).json()
        text = client.post("/v1/chat/completions", json=body(stream=True)).text
    check(busy, [plain["choices"][0]["message"]["content"], streamed(text)])


async def test_aiohttp(busy: Gateway) -> None:
    async with aiohttp.ClientSession(base_url=busy.url, headers=ASKS) as session:
        async with session.post("/v1/chat/completions", json=body()) as answer:
            plain = await answer.json()
        async with session.post("/v1/chat/completions", json=body(stream=True)) as answer:
            text = await answer.text()
    check(busy, [plain["choices"][0]["message"]["content"], streamed(text)])


def test_curl(busy: Gateway) -> None:
    url = f"{busy.url}/v1/chat/completions"

    def arguments(**members: Any) -> list[str]:
        return ["-sS", "-H", "X-Accept-Early-Hints: 1", "--json", json.dumps(body(**members)), url]

    command = ["curl", *arguments(), "--next", *arguments(stream=True)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    plain, end = json.JSONDecoder().raw_decode(output)
    check(busy, [plain["choices"][0]["message"]["content"], streamed(output[end:])])


@pytest.fixture(scope="session")
def node() -> str:
    """Node, of the test environment or of the machine, with the packages of `tests/integration/clients`."""
    folder = Path(sys.executable).parent
    program = shutil.which("node", path=f"{folder}:/usr/local/bin:/usr/bin")
    assert program, "no node: make venv installs one"
    if not (CLIENTS / "node_modules/openai/package.json").exists():
        npm = shutil.which("npm", path=f"{folder}:/usr/local/bin:/usr/bin")
        assert npm, "no npm: make venv installs one"
        subprocess.run([npm, "ci", "--silent"], cwd=CLIENTS, check=True, timeout=110)
    return program


@pytest.mark.parametrize("script", ["openai_client.mjs", "fetch_client.mjs"])
def test_node(busy: Gateway, node: str, script: str) -> None:
    command = [node, str(CLIENTS / script), busy.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    check(busy, [answers["plain"], answers["streamed"]])


def twice(ask: Callable[[dict[str, Any]], str]) -> list[str]:
    plain = json.loads(ask(body()))
    return [plain["choices"][0]["message"]["content"], streamed(ask(body(stream=True)))]


def test_requests(busy: Gateway) -> None:
    with requests.Session() as session:
        session.trust_env = False
        url = f"{busy.url}/v1/chat/completions"
        assert twice(lambda members: session.post(url, json=members, timeout=30).text) == [PLAIN, STREAMED]


def test_urllib3(busy: Gateway) -> None:
    with urllib3.PoolManager(maxsize=1) as pool:
        url = f"{busy.url}/v1/chat/completions"
        answers = twice(lambda members: pool.request("POST", url, json=members).data.decode())
    assert answers == [PLAIN, STREAMED]


def test_http_client(busy: Gateway) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", busy.port, timeout=30)

    def ask(members: dict[str, Any]) -> str:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(members), headers)
        return connection.getresponse().read().decode()

    assert twice(ask) == [PLAIN, STREAMED]
    connection.close()
