"""A real vLLM on the CPU, its processes and how they are stopped."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.ports import free_port

HERE = Path(__file__).parent
MODEL = "tiny"
CONTEXT, BLOCKS, SEQUENCES = 2048, 32, 8
"""KV memory in blocks (of as many tokens as vLLM takes for one on a CPU), and requests at once."""
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
ALONE = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


@dataclass
class VllmEngine:
    """One `vllm serve`: a server of the API, and behind it the processes that compute."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def figure(self, name: str) -> float:
        """A figure of its metrics page, summed over its labels."""
        page = httpx.get(self.url + "/metrics", timeout=5).text
        return sum(float(v) for v in re.findall(rf"^vllm:{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE))

    def running(self) -> int:
        """Requests that it works on now."""
        return int(self.figure("num_requests_running"))

    def signal_core(self, number: signal.Signals) -> None:
        """Signal what computes; the server of the API goes on answering."""
        for name in Path("/proc").glob("[0-9]*/comm"):
            pid = int(name.parent.name)
            with contextlib.suppress(OSError):
                if name.read_text().startswith("VLLM::") and os.getpgid(pid) == self.process.pid:
                    os.kill(pid, number)

    def stop(self) -> None:
        """Kill all of it, however it stands."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start_vllm(vllm: Path, weights: Path, log: Path) -> VllmEngine:
    """Start one; it is ready when `/health` answers 200, a minute later or so."""
    port = free_port()
    options = {
        "--served-model-name": MODEL,
        "--load-format": "dummy",
        "--dtype": "float32",
        "--max-model-len": CONTEXT,
        "--max-num-seqs": SEQUENCES,
        "--num-gpu-blocks-override": BLOCKS,
        "--host": "127.0.0.1",
        "--port": port,
    }
    command = [str(vllm), "serve", str(weights), "--enforce-eager", "--enable-prompt-tokens-details"]
    command += [str(part) for option in options.items() for part in option]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env={**os.environ, **QUIET, **ALONE},
            start_new_session=True,
        )
    return VllmEngine(port, process)
