"""`python -m emulator` as a process."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.documentation import blocks

Launch = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def launch(root: Path) -> Iterator[Launch]:
    """Starts an emulator on a free port; returns the process and its URL."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "emulator", "--port", "0", *options]
        process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout
        return process, process.stdout.readline().split()[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def chat(url: str, tokens: int) -> httpx.Response:
    body = {"model": "llama-3-8b", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"X-Emulator-Output-Tokens": str(tokens)}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def test_it_serves_and_ends_on_sigterm(launch: Launch) -> None:
    process, url = launch("--gpu", "T4", "--precision", "int4", "--speed", "100")
    assert chat(url, 5).json()["usage"]["completion_tokens"] == 5
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


@pytest.mark.parametrize("line", blocks("docs/emulator.md", "sh", "tested")[0].splitlines())
def test_the_commands_of_its_page_start_a_server(launch: Launch, line: str) -> None:
    words = shlex.split(line)
    assert words[:4] == [".venv/bin/python", "-m", "emulator", "--port"]
    _, url = launch(*words[5:])
    wanted = 503 if "--startup-seconds" in words else 200
    assert httpx.get(f"{url}/v1/models").status_code == wanted


def test_it_dies_when_its_memory_is_full_and_its_clients_lose_their_connection(launch: Launch) -> None:
    process, url = launch("--kind", "crash", "--capacity", "160", "--max-model-len", "160", "--speed", "1000")
    httpx.post(f"{url}/admin/fault", json={"kind": "slow", "factor": 100})
    body = {"model": "llama-3-8b", "prompt": ["x" * 200, "y" * 200], "max_tokens": 100, "ignore_eos": True}
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert process.wait(30) == 70


def test_it_dies_on_order(launch: Launch) -> None:
    process, url = launch()
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{url}/admin/fault", json={"kind": "crash"})
    assert process.wait(30) == 70


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu", "Voodoo2"], "unknown GPU 'Voodoo2'; known: A10"),
        (["--model", "llama-9"], "unknown model 'llama-9'; known: "),
        (["--precision", "fp3"], "unknown precision 'fp3'; known: "),
        (["--gpu", "T4"], "llama-3-8b at fp16 needs 16.1 GB"),
        (["--speed", "0"], "speed must be above 0"),
        (
            ["--capacity", "1000", "--max-model-len", "2000"],
            "max-model-len must be between 2 and the KV capacity",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(root: Path, options: list[str], message: str) -> None:
    command = [sys.executable, "-m", "emulator", "--port", "0", *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kv-port", "1"], "go with --kv-bytes"),
        (["--kv-bytes", "64", "--kv-pace", "0"], "--kv-pace must be above 0"),
        (["--kv-bytes", "64", "--host", "0.0.0.0"], "an agent on 0.0.0.0 needs --kv-token-file"),
        (["--kv-bytes", "64", "--kv-token-file", "/no/such.token"], "/no/such.token"),
    ],
)
def test_an_agent_that_cannot_be_is_refused(root: Path, options: list[str], says: str) -> None:
    command = [sys.executable, "-m", "emulator", "--port", "0", *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert says in done.stderr
