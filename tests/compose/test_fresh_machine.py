"""`make up` on a machine that has nothing but Debian 13, git's checkout and make: a bare container."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.compose, pytest.mark.timeout(600)]

PROCESSES = r'for p in /proc/[0-9]*; do tr "\0" " " <"$p/cmdline"; echo; done'


class Machine:
    """A container that stands for a machine."""

    def __init__(self, root: Path) -> None:
        self.id = subprocess.run(
            ["docker", "run", "--detach", "--rm", "debian:trixie-slim", "sleep", "3600"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
        ).stdout
        self.run(
            "mkdir -p /srv/tokenweir && apt-get update -qq && apt-get install -y -qq make >/dev/null 2>&1"
        )
        tree = subprocess.run(
            ["tar", "--create", "--null", "--files-from=-", "--ignore-failed-read"],
            cwd=root,
            input=listed,
            capture_output=True,
            check=True,
        )
        subprocess.run(
            ["docker", "exec", "--interactive", self.id, "tar", "-x", "-C", "/srv/tokenweir"],
            input=tree.stdout,
            check=True,
        )

    def run(self, script: str, user: str = "root", status: int = 0) -> str:
        """Run a script in the checkout; what it prints on both streams."""
        done = subprocess.run(
            ["docker", "exec", "--user", user, "--workdir", "/", self.id, "sh", "-ec", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == status, f"{script}\n{done.stdout}"
        return done.stdout

    def remove(self) -> None:
        """Take the machine away."""
        subprocess.run(["docker", "rm", "--force", self.id], capture_output=True, check=True)


@pytest.fixture
def machine(root: Path) -> Iterator[Machine]:
    """A fresh one for each test."""
    made = Machine(root)
    yield made
    made.remove()


def curl_line(said: str) -> str:
    """The line that `make up` offers, asked with Python, since a bare machine has no curl."""
    url = re.search(r"http://\S+/v1/chat/completions", said)
    body = re.search(r"-d '(.*)'", said)
    assert url, said
    assert body, said
    code = (
        f"from urllib.request import Request, urlopen; request = Request('{url[0]}', "
        "open('/tmp/body', 'rb').read(), {'Content-Type': 'application/json'}); "
        "print(urlopen(request).read().decode())"
    )
    return f"cat >/tmp/body <<'BODY'\n{body[1]}\nBODY\npython3 -c \"{code}\""


def test_make_up_works_as_root_and_leaves_the_systems_services_alone(machine: Machine) -> None:
    machine.run(
        "apt-get install -y -qq redis-server >/dev/null 2>&1; redis-server --port 6379 --daemonize yes"
    )
    said = machine.run("cd /srv/tokenweir && make up")
    assert "data: [DONE]" in machine.run(curl_line(said))
    assert machine.run("ls /usr/sbin/policy-rc.d 2>/dev/null || true") == ""
    processes = machine.run(PROCESSES)
    assert "redis-server *:6379" in processes
    assert "/usr/sbin/nginx -g daemon on" not in processes
    assert "S01nginx" not in machine.run("ls /etc/rc3.d")
    assert "redis" in machine.run("ls /etc/rc3.d | grep S0.redis")

    began = time.monotonic()
    machine.run("cd /srv/tokenweir && make up")
    assert time.monotonic() - began < 10
    assert "4 of 4 backends ready" in machine.run("cd /srv/tokenweir && make status")

    machine.run("cd /srv/tokenweir && make down")
    processes = machine.run(PROCESSES)
    assert "/srv/tokenweir" not in processes.replace("cd /srv/tokenweir", "")
    assert "redis-server *:6379" in processes


REQUESTS = 4000
"""Of these more than 2,000 are recorded, though a worker records a hundred a second at most."""
TRAFFIC = """
import json
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

def ask(number):
    words = ("Write an essay about" if number % 2 else "Briefly, in a word, about"), f"subject{number % 97}"
    body = {"model": "llama-3-8b", "messages": [{"role": "user", "content": " ".join(words)}]}
    headers = {"Content-Type": "application/json", "X-Emulator-Output-Tokens": "40" if number % 2 else "4"}
    request = Request("http://127.0.0.1:8080/v1/chat/completions", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=60) as answer:
        return int(answer.headers["X-Tokenweir-Predicted-Tokens"])

with ThreadPoolExecutor(48) as clients:
    said = list(clients.map(ask, range(COUNT)))
print("predicted:", said[-2:])
"""


def test_make_train_learns_from_the_traffic_since_make_up(machine: Machine) -> None:
    machine.run("echo 'predictor: {sample: 1}' >>/srv/tokenweir/tokenweir.yaml")
    machine.run("cd /srv/tokenweir && make up")
    machine.run(f"cat >/tmp/traffic.py <<'CODE'\n{TRAFFIC.replace('COUNT', str(REQUESTS))}\nCODE\n")
    machine.run("python3 /tmp/traffic.py")
    status = machine.run("cd /srv/tokenweir && make status")
    assert "running figures (no model yet)" in status
    assert "`make train` installs" in status
    said = machine.run("cd /srv/tokenweir && make train")
    assert re.search(r"training from \d+ outputs: /srv/tokenweir/var/completions", said), said
    assert "published" in said, said
    # The sidecar tells of it with one of its next snapshots.
    tells = "make status | grep -q 'predictor: model '"
    machine.run(f"cd /srv/tokenweir && for _ in 1 2 3 4 5; do {tells} && exit 0; sleep 1; done; exit 1")
    machine.run("sed -i 's/range(4000)/range(40)/' /tmp/traffic.py")
    found = re.search(r"predicted: \[(\d+), (\d+)\]", machine.run("python3 /tmp/traffic.py"))
    assert found
    short, long = int(found[1]), int(found[2])
    assert short < 20
    assert long > 20


def test_make_up_works_for_a_user_with_sudo(machine: Machine) -> None:
    machine.run(
        "apt-get install -y -qq sudo >/dev/null 2>&1; useradd --create-home ada; "
        "echo 'ada ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ada; cp -r /srv/tokenweir /home/ada/; "
        "chown -R ada: /home/ada; chmod 700 /home/ada"
    )
    said = machine.run("cd ~/tokenweir && make up", user="ada")
    assert "data: [DONE]" in machine.run(curl_line(said), user="ada")
    assert machine.run("find /home/ada -user root", user="ada") == ""
    machine.run("cd ~/tokenweir && make down", user="ada")


def test_without_root_and_sudo_it_says_what_to_install_and_why(machine: Machine) -> None:
    machine.run("useradd --create-home ada; cp -r /srv/tokenweir /home/ada/; chown -R ada: /home/ada")
    said = machine.run("cd ~/tokenweir && make up", user="ada", status=2)
    for package in ("python3", "python3-venv", "nginx", "libnginx-mod-http-lua", "lua-cjson", "redis-server"):
        assert re.search(rf"^  {package}: .+", said, re.MULTILINE), said
    assert re.search(r"apt-get install --no-install-recommends .*libnginx-mod-http-lua", said)
    assert "Traceback" not in said
