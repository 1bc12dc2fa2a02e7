"""What the README and docs/operations.md tell people to type, in a copy of the repository, on free ports."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from tests.documentation import blocks
from tests.ports import free_port

pytestmark = pytest.mark.timeout(180)

PORTS = ("8080", "8081", "9080", "16379", "18001", "18002", "18003", "18004")


@dataclass
class Copy:
    """A copy of the repository whose documented ports are replaced by free ones."""

    root: Path
    ports: dict[str, str]

    def adapted(self, text: str) -> str:
        """The text with the copy's ports."""
        return re.sub(r"\b(\d{4,5})\b", lambda match: self.ports.get(match[1], match[1]), text)

    def run(self, script: str, status: int = 0) -> str:
        """Run a documented block as a person would, and give what it prints."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.adapted(script)],
            cwd=self.root,
            env={key: value for key, value in os.environ.items() if not key.startswith("TOKENWEIR_")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == status, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def pids(self) -> dict[str, int]:
        """The processes that `make up` has started, by name."""
        files = (self.root / "var/run").glob("*.json")
        return {file.stem: json.loads(file.read_text())["identity"]["pid"] for file in files}


@pytest.fixture(scope="module")
def copy(root: Path) -> Iterator[Copy]:
    """The copy, stopped and removed in the end."""
    place = Path(tempfile.mkdtemp(prefix="tokenweir-", dir="/tmp"))
    place.chmod(0o755)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        source = root / name
        if source.is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place / name)
    (place / ".venv").symlink_to((root / ".venv").resolve())
    made = Copy(place, {port: str(free_port()) for port in PORTS})
    config = place / "tokenweir.yaml"
    text = made.adapted(config.read_text())
    text = text.replace("listen: {", f"listen: {{metrics_port: {made.ports['9080']}, ")
    config.write_text(f"{text}\nredis: {{port: {made.ports['16379']}}}\n")
    yield made
    made.run("make down")
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def running(copy: Copy) -> Copy:
    """The copy after the README's first command."""
    copy.run(blocks("README.md", "sh", "tested")[0])
    return copy


def test_the_readme_begins_with_make_up() -> None:
    assert blocks("README.md", "sh", "tested")[0] == "make up\n"


def test_the_curl_line_of_the_readme_streams_an_answer(running: Copy) -> None:
    answer = running.run(blocks("README.md", "sh", "tested")[1])
    assert answer.startswith("data: {")
    assert answer.rstrip().endswith("data: [DONE]")


def test_the_python_example_of_the_readme_prints_an_answer(running: Copy) -> None:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{running.ports['8080']}/v1", api_key="none")
    stream = client.chat.completions.create(
        model="llama-3-8b",
        stream=True,
        max_tokens=16,
        messages=[{"role": "user", "content": "Say hello."}],
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def test_make_up_prints_urls_and_a_curl_line_that_works(running: Copy) -> None:
    said = running.run("make up")
    assert f"http://127.0.0.1:{running.ports['8080']}/v1" in said
    assert f"http://127.0.0.1:{running.ports['8081']}" in said
    line = next(line for line in said.splitlines() if line.startswith("curl"))
    assert "data: [DONE]" in running.run(line)


def test_make_up_again_is_fast_and_leaves_every_process_alone(running: Copy) -> None:
    before, began = running.pids(), time.monotonic()
    running.run("make up")
    assert time.monotonic() - began < 30
    assert running.pids() == before
    assert len(before) == 8


def test_make_status_shows_the_fleet_with_its_scores(running: Copy) -> None:
    said = running.run("make status")
    for backend in ("a100-a", "a100-b", "h100", "t4"):
        assert re.search(rf"{backend} .* ready ", said), said
    assert "4 of 4 backends ready" in said


def test_the_admin_api_does_what_the_operations_page_says(running: Copy) -> None:
    for block in blocks("docs/operations.md", "sh", "running"):
        for line in block.splitlines():
            answer = running.run(line.replace("curl -sS", "curl -sS --fail-with-body"))
            assert json.loads(answer) is not None, "an answer; of alerts there may be none"
    policy = httpx.get(f"http://127.0.0.1:{running.ports['8081']}/api/policy", trust_env=False).json()
    assert policy["policy"] == "round_robin"


def test_make_up_applies_an_edited_configuration_and_leaves_the_gateway_running(running: Copy) -> None:
    before, config = running.pids(), running.root / "tokenweir.yaml"
    text = config.read_text()
    config.write_text(re.sub(r"  - \{id: t4,.*?\}\n", "", text, flags=re.DOTALL))
    running.run("make up")
    after = running.pids()
    assert set(before) - set(after) == {"emulator-t4"}
    assert {name for name in after if after[name] != before[name]} == {"sidecar"}
    assert "3 of 3 backends ready" in running.run("make status")
    config.write_text(text)
    running.run("make up")
    assert running.pids()["gateway"] == before["gateway"]


def test_keys_and_aliases_hold_once_make_up_has_ended(running: Copy) -> None:
    config = running.root / "tokenweir.yaml"
    text, said = config.read_text(), running.run(".venv/bin/python -m tokenweir key team-a")
    key, lines = re.search(r"^key: +(\S+)$", said, re.MULTILINE), said.partition("In tokenweir.yaml:")[2]
    assert key
    config.write_text(f"{text}\nmodels: [{{name: llama-3-8b, aliases: [gpt-4o-mini]}}]\n{lines}")
    running.run("make up")
    url = f"http://127.0.0.1:{running.ports['8080']}/v1/chat/completions"
    body = {"model": "gpt-4o-mini", "max_tokens": 2, "messages": [{"role": "user", "content": "Say hello."}]}
    assert httpx.post(url, json=body, trust_env=False).status_code == 401
    headers = {"Authorization": f"Bearer {key[1]}"}
    assert httpx.post(url, json=body, headers=headers, trust_env=False, timeout=30).status_code == 200
    config.write_text(text)
    running.run("make up")
    assert "data: [DONE]" in running.run(blocks("README.md", "sh", "tested")[1])


def test_make_up_names_the_error_of_a_broken_configuration_and_changes_nothing(running: Copy) -> None:
    config = running.root / "tokenweir.yaml"
    text = config.read_text()
    config.write_text(text + "\npolcy: hybrid\n")
    said = running.run("make up 2>&1", status=2)
    shown = running.run("make status 2>&1", status=2)
    config.write_text(text)
    for output in (said, shown):
        assert "did you mean `policy`" in output
        assert "Traceback" not in output
    assert "4 of 4 backends ready" in shown
    running.run("make status")


def test_the_dashboard_and_the_alerts_use_only_metrics_that_exist(running: Copy) -> None:
    exposed = ""
    for port in ("9080", "8081"):
        exposed += httpx.get(f"http://127.0.0.1:{running.ports[port]}/metrics", trust_env=False).text
    known = set(re.findall(r"^# TYPE (\S+)", exposed, re.MULTILINE))
    text = (running.root / "deploy/grafana/tokenweir.json").read_text()
    text += (running.root / "deploy/prometheus/alerts.yml").read_text()
    used = {name.removesuffix("_bucket") for name in re.findall(r"\btokenweir_[a-z_]+", text)}
    assert used <= known
    assert len(used) > 15


def test_the_scrape_configuration_names_the_ports_of_the_metrics(running: Copy) -> None:
    text = running.adapted((running.root / "deploy/prometheus/prometheus.yml").read_text())
    for port in ("9080", "8081"):
        assert f"127.0.0.1:{running.ports[port]}" in text


def test_an_upgrade_renews_gateway_and_sidecar_while_a_stream_goes_on(running: Copy, tmp_path: Path) -> None:
    git = "git -c user.name=a -c user.email=a@b -c commit.gpgsign=false"
    upstream = tmp_path / "upstream"
    running.run(f"git init -q -b main && git add -A && {git} commit -qm one && git clone -q . {upstream}")
    running.run(f"git remote add origin {upstream} && git fetch -q && git branch -q -u origin/main")
    for name, text in (("sidecar/__init__.py", "# new"), ("lua/tokenweir/new.lua", "return {}")):
        with (upstream / name).open("a") as file:
            file.write(f"{text}\n")
    running.run(f"cd {upstream} && git add -A && {git} commit -qm two")
    with (running.root / "tokenweir.yaml").open("a") as file:
        file.write("# an edit of this host's\n")
    before = running.pids()

    url = f"http://127.0.0.1:{running.ports['8080']}/v1/chat/completions"
    body = {"model": "llama-3-8b", "stream": True, "max_tokens": 1500, "ignore_eos": True}
    body |= {"messages": [{"role": "user", "content": "Tell me a long story."}]}
    with httpx.stream("POST", url, json=body, timeout=60, trust_env=False) as stream:
        chunks = stream.iter_text()
        text = next(chunks)
        said = running.run(blocks("docs/operations.md", "sh", "upgrade")[0])
        metrics = httpx.get(f"http://127.0.0.1:{running.ports['9080']}/metrics", trust_env=False).text
        after = running.pids()
        text += "".join(chunks)
    assert {name for name in after if after[name] != before.get(name)} == {"sidecar"}
    assert text.rstrip().endswith("data: [DONE]")
    assert "upstream_broke" not in text
    assert (running.root / "tokenweir.yaml").read_text().endswith("# an edit of this host's\n")
    assert re.search(r"^gateway .*: reloaded", said, re.MULTILINE)
    assert re.search(r"^tokenweir_inflight\{.*\} 1$", metrics, re.MULTILINE), "the stream has ended too early"


@pytest.mark.parametrize("page", ["docs/operations.md"])
def test_other_documented_commands_work(copy: Copy, page: str) -> None:
    for block in blocks(page, "sh", "tested"):
        for line in block.splitlines():
            assert copy.run(line)


def test_make_down_stops_every_process_and_frees_every_port(running: Copy) -> None:
    said = running.run("make down")
    assert "stopped 8 processes" in said
    for name in ("8080", "8081", "16379", "18001"):
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{running.ports[name]}/", trust_env=False)
    assert "nothing runs" in running.run("make down")


def test_the_levels_can_be_seen_as_the_page_on_the_control_loop_says(copy: Copy) -> None:
    ports = copy.ports
    text = copy.adapted(blocks("docs/control.md", "yaml", "tested")[1])
    text += f"listen: {{port: {ports['8080']}, metrics_port: {ports['9080']}}}\n"
    text += f"admin: {{port: {ports['8081']}}}\nredis: {{port: {ports['16379']}}}\n"
    (copy.root / "levels.yaml").write_text(text)
    start, chats = blocks("docs/control.md", "sh", "levels")
    try:
        said = copy.run(start)
        assert "make status CONFIG=levels.yaml, make down CONFIG=levels.yaml" in said
        line = re.search(r"^model llama-3-8b: .*$", copy.run(chats), re.MULTILINE)
        assert line
        assert "level 1: new sessions are refused" in line[0]
        assert "level 2: low priority is dropped" in line[0]
        assert "burst: " in line[0]
    finally:
        copy.run("make down CONFIG=levels.yaml")
