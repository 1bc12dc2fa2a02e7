"""Real servers for tests: a Redis and an nginx with the Lua module, on free ports, each in its own folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import redis

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
LUA_MODULES = ("ndk_http_module.so", "ngx_http_lua_module.so")


PATIENCE = 30.0
"""Seconds after which what should come is taken not to come: far longer than a busy machine needs."""


def wait_until(
    condition: Callable[[], object], seconds: float = PATIENCE, what: str = "the condition"
) -> None:
    """Waits until `condition()` is true; an assertion error names what did not come.

    The limit only ends a wait in vain. Where a thing must come soon, a test says so by `quickest`, or by a
    limit that is far from what a busy machine adds and as far from what would happen without it.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true in {seconds} s"
        time.sleep(0.02)


def quickest(attempt: Callable[[], float], enough: float, attempts: int = 5) -> float:
    """The least of several measured times, in seconds: a busy machine delays one or the other, not all.
    No more attempts are made once one took less than `enough`."""
    best = attempt()
    for _ in range(attempts - 1):
        if best < enough:
            break
        best = min(best, attempt())
    return best


def well_within_a_minute(seconds: float = 5) -> None:
    """Waits for the next minute where this one ends soon, so that all that follows is counted in one."""
    left = 60 - time.time() % 60
    if left < seconds:
        time.sleep(left)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def replace_workers(workers: Callable[[], list[int]]) -> None:
    """Kills every nginx worker, and waits until there are as many others and the old ones are gone.

    One that is about to die may still take a connection.
    """
    killed = set(workers())
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def replaced() -> bool:
        now = set(workers())
        return not now & killed and len(now) >= len(killed)

    wait_until(replaced, what="new workers")


class RedisServer:
    """A redis-server on a free port, without persistence unless its options say so."""

    def __init__(self, folder: Path, options: Iterable[str] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        self.options = list(options)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> RedisServer:
        """Starts it and waits until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "no", "--logfile", "redis.log", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: _answers(self.port), what="redis-server")
        return self

    def stop(self) -> None:
        """Stops it at once."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """Stops it from answering, with its connections open."""
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it answer again."""
        assert self.process
        self.process.send_signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        """A client of the default user."""
        return redis.Redis(port=self.port, decode_responses=True)


def observed(lines: str, name: str) -> dict[int, float]:
    """A figure of each worker, by process id, from what `observe.lua` tells."""
    rows = (line.split() for line in lines.splitlines())
    return {int(pid): float(value) for pid, of, value in rows if of == name}


def applied_everywhere(lines: str, workers: Iterable[int], count: int, document: str, number: float) -> bool:
    """Whether `count` of the workers have applied this version of a document, by what `observe.lua` tells."""
    applied = observed(lines, document)
    return sum(applied.get(pid, -1) >= number for pid in workers) >= count


def nginx_program() -> str:
    """The nginx with the Lua module on this machine: nginx, or OpenResty's."""
    for name in ("nginx", "/usr/sbin/nginx", "openresty", "/usr/local/openresty/nginx/sbin/nginx"):
        found = shutil.which(name)
        if found:
            return found
    raise FileNotFoundError("no nginx with the Lua module: apt install nginx libnginx-mod-http-lua lua-cjson")


def load_module_lines() -> str:
    """`load_module` lines for the Lua module where it is a shared object; empty where it is built in."""
    version = subprocess.run([nginx_program(), "-V"], capture_output=True, text=True, check=True).stderr
    match = re.search(r"--modules-path=(\S+)", version)
    folder = Path(match.group(1)) if match else Path("/usr/lib/nginx/modules")
    paths = [folder / name for name in LUA_MODULES]
    return "".join(f"load_module {path};\n" for path in paths if path.exists())


class Nginx:
    """An nginx master with its workers, started from a configuration in a folder of its own.

    `http` is the inside of the http block, `main` what stands before it; `{port}` in `http` is the port that
    it listens on and `{folder}` its folder.
    """

    def __init__(
        self,
        folder: Path,
        http: str,
        main: str = "worker_processes 2;",
        workers: int = 2,
        detached: bool = False,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.http = http
        self.main = main
        self.workers_expected = workers
        self.master = 0
        self.detached = detached
        """Whether the master is no child of the test: only then does it take SIGUSR2."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self) -> Path:
        """Its nginx.conf."""
        return self.folder / "nginx.conf"

    def write_config(self) -> None:
        """Writes nginx.conf from `main` and `http`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Debian's packages load what is enabled in /etc/nginx only from their own nginx.conf.
        temp = "".join(
            f"  {kind}_temp_path temp_{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        http = self.http.replace("{port}", str(self.port)).replace("{folder}", str(self.folder))
        daemon = "on" if self.detached else "off"
        self.config.write_text(
            f"{load_module_lines()}{self.main}\ndaemon {daemon};\npid nginx.pid;\n"
            "error_log error.log notice;\n"
            f"events {{ worker_connections 2048; }}\nhttp {{\n  access_log off;\n{temp}"
            f'  lua_package_path "{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;;";\n{http}\n}}\n'
        )

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs nginx on this configuration with other arguments, for example `-t`."""
        return subprocess.run(
            [nginx_program(), "-p", str(self.folder), "-c", str(self.config), "-e", "error.log", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self) -> Nginx:
        """Writes the configuration, starts nginx and waits until it listens."""
        self.write_config()
        command = [nginx_program(), "-p", str(self.folder), "-c", str(self.config), "-e", "error.log"]
        if self.detached:
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            pid_file = self.folder / "nginx.pid"
            wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), what="nginx.pid")
            self.master = int(pid_file.read_text())
        else:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.master = self._process.pid

        def ready() -> bool:
            assert self.is_running(), f"nginx did not start:\n{self.error_log()}"
            return _answers(self.port) and len(self.workers()) >= self.workers_expected

        wait_until(ready, what="nginx")
        return self

    def is_running(self) -> bool:
        """Whether the master is there."""
        if self._process:
            return self._process.poll() is None
        return self.master > 0 and is_alive(self.master)

    def workers(self) -> list[int]:
        """Process ids of the workers, those that drain included."""
        children = Path(f"/proc/{self.master}/task/{self.master}/children").read_text().split()
        return [int(pid) for pid in children]

    def signal(self, number: int) -> None:
        """Sends a signal to the master."""
        os.kill(self.master, number)

    def reload(self) -> None:
        """Starts new workers; the old ones drain. Waits until the new ones are there."""
        before = set(self.workers())
        self.signal(signal.SIGHUP)
        wait_until(
            lambda: len(set(self.workers()) - before) >= self.workers_expected,
            what="new workers after the reload",
        )

    def stop(self, graceful: bool = False) -> None:
        """Stops nginx: gracefully (streams may end), or at once."""
        if not self.is_running():
            return
        processes = [self.master, *self.workers()]
        self.signal(signal.SIGQUIT if graceful else signal.SIGTERM)
        try:
            wait_until(lambda: not self.is_running(), seconds=20, what="the end of nginx")
        except AssertionError:
            for pid in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise

    def error_log(self) -> str:
        """What stands in its error log."""
        path = self.folder / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""
