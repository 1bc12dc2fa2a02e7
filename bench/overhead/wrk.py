"""Closed-loop load by wrk (one thread): speed, latency, and the CPU that the system used meanwhile."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.servers import cpu
from bench.servers.process import StartError

_SCRIPT = Path(__file__).with_name("wrk.lua")


@dataclass(frozen=True)
class Sample:
    """One run of wrk against one system."""

    requests: int
    per_second: float
    p50_us: float
    p99_us: float
    cpu_us: float
    """CPU per request of all processes of the system, us."""
    errors: int
    """Answers that were not 2xx or 3xx, and socket errors."""


def binary() -> str:
    """Return the path of wrk, or say how to get it."""
    found = shutil.which("wrk")
    if not found:
        raise StartError("wrk is not installed: apt-get install wrk")
    return found


def run(port: int, root: int, body: Path, connections: int, seconds: int) -> Sample:
    """Load the system on `port`, whose processes descend from `root`, for whole `seconds`."""
    command = [binary(), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(_SCRIPT)]
    command += [f"http://127.0.0.1:{port}/v1/chat/completions", "--", str(body)]
    before = cpu.cpu_seconds(root)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    spent = cpu.cpu_seconds(root) - before
    if done.returncode:
        raise RuntimeError(f"wrk failed: {done.stdout}{done.stderr}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    requests = max(1, int(result["requests"]))
    return Sample(
        requests=requests,
        per_second=requests / result["duration_us"] * 1e6,
        p50_us=result["p50_us"],
        p99_us=result["p99_us"],
        cpu_us=spent / requests * 1e6,
        errors=result["status_errors"] + result["socket_errors"],
    )
