"""`docker compose --profile demo up`: it serves, and it is closed where it should be."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import httpx
import openai
import pytest

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

SERVICES = {"redis", "sidecar", "gateway", "a100-a", "a100-b", "h100", "t4"}


def inspect(stack: Any) -> dict[str, Any]:
    """What the engine says of each container, by service."""
    ids = stack.compose("ps", "--all", "--quiet").split()
    found = json.loads(subprocess.run(["docker", "inspect", *ids], capture_output=True, check=True).stdout)
    return {item["Config"]["Labels"]["com.docker.compose.service"]: item for item in found}


def test_an_openai_client_streams_an_answer(stack: Any) -> None:
    client = openai.OpenAI(base_url=stack.base_url, api_key="none")
    stream = client.chat.completions.create(
        model="llama-3-8b",
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text
    assert chunks[-1].usage is not None
    assert 1 <= chunks[-1].usage.completion_tokens <= 16


def test_the_answer_says_which_backend_gave_it(stack: Any) -> None:
    body = {"model": "llama-3-8b", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
    answer = httpx.post(f"{stack.base_url}/chat/completions", json=body, timeout=30, trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["X-Tokenweir-Backend"] in {"a100-a", "a100-b", "h100", "t4"}


def test_every_service_is_healthy(stack: Any) -> None:
    healthy: set[str] = set()
    until = time.monotonic() + 30
    while healthy != SERVICES and time.monotonic() < until:
        states = {
            name: item["State"].get("Health", {}).get("Status") for name, item in inspect(stack).items()
        }
        healthy = {name for name, status in states.items() if status == "healthy"}
    assert healthy == SERVICES


def test_the_admin_api_is_published_on_loopback_only_and_wants_its_token(stack: Any) -> None:
    published = inspect(stack)["sidecar"]["NetworkSettings"]["Ports"]["8081/tcp"]
    assert {binding["HostIp"] for binding in published} == {"127.0.0.1"}
    assert httpx.get(f"{stack.admin_url}/api/fleet", timeout=5, trust_env=False).status_code == 401
    assert stack.admin("/api/fleet").status_code == 200


def test_redis_is_not_published_and_lets_nobody_in_without_a_password(stack: Any) -> None:
    assert not any(inspect(stack)["redis"]["NetworkSettings"]["Ports"].values())
    assert "NOAUTH" in stack.compose("exec", "-T", "redis", "redis-cli", "get", "tw:snapshot")


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_a_container_runs_without_root_capabilities_or_a_writable_root(stack: Any, service: str) -> None:
    item = inspect(stack)[service]
    host = item["HostConfig"]
    assert item["Config"]["User"].split(":")[0] not in {"", "0", "root"}
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["Memory"] > 0
    assert host["PidsLimit"] > 0


def test_the_gateway_stops_gracefully(stack: Any) -> None:
    assert inspect(stack)["gateway"]["Config"]["StopSignal"] == "SIGQUIT"


def test_the_gateways_access_log_goes_to_its_output_without_the_prompt(stack: Any) -> None:
    body = {"model": "llama-3-8b", "max_tokens": 4, "messages": [{"role": "user", "content": "sesame-4711"}]}
    headers = {"X-Request-Id": "compose-access-log"}
    httpx.post(f"{stack.base_url}/chat/completions", json=body, headers=headers, timeout=30, trust_env=False)
    logs, until = "", time.monotonic() + 10
    while "compose-access-log" not in logs and time.monotonic() < until:
        logs = stack.compose("logs", "--no-log-prefix", "gateway")
    line = next(line for line in logs.splitlines() if "compose-access-log" in line)
    assert json.loads(line[line.index("{") :])["status"] == 200
    assert "sesame-4711" not in logs
