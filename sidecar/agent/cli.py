"""`python -m sidecar.agent`: shows the GPUs of a host where no DCGM exporter runs, and reads weights ahead.

A backend names it as its exporter: `dcgm_url: http://gpu-a:9401/metrics`. It needs the packages aiohttp and
nvidia-ml-py, no Redis and no configuration.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from aiohttp import web

from sidecar.agent.server import Agent
from sidecar.telemetry.nvml import Nvml, NvmlUnavailableError

SHORTEST_TOKEN = 16


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line. Ends the program on what cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m sidecar.agent", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1", help="0.0.0.0 lets others in; default: %(default)s")
    parser.add_argument("--port", type=int, default=9401, help="default: %(default)s")
    parser.add_argument("--weights", type=Path, help="folder below which weights may be read ahead")
    parser.add_argument("--token-file", type=Path, help="file with the token that asks for it")
    found = parser.parse_args(arguments)
    found.token = None
    if (found.weights is None) != (found.token_file is None):
        parser.error("--weights and --token-file belong together")
    if found.weights is not None:
        if not found.weights.is_dir():
            parser.error(f"--weights {found.weights}: no such folder")
        try:
            found.token = found.token_file.read_text().strip()
        except OSError as error:
            parser.error(f"--token-file {found.token_file}: {error.strerror}")
        if len(found.token) < SHORTEST_TOKEN:
            parser.error(f"--token-file {found.token_file}: the token needs {SHORTEST_TOKEN} characters")
    return found


def main() -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    chosen = options()
    nvml = Nvml()
    try:
        count = len(nvml.read())
    except NvmlUnavailableError as error:
        # It is started with the host, perhaps before the driver: it says so at every look instead.
        print(f"no GPU yet: {error}", file=sys.stderr, flush=True)
    else:
        print(f"{count} GPUs", flush=True)

    async def app() -> web.Application:
        return Agent(nvml, chosen.weights, chosen.token).app()

    web.run_app(app(), host=chosen.address, port=chosen.port, access_log=None, print=None)
    return 0
