"""`python -m sidecar --config tokenweir.yaml`: runs one sidecar until SIGTERM or SIGINT; SIGHUP reads the
configuration again."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import structlog
import uvicorn

from sidecar import app, logs, open_files
from sidecar.control_plane import ControlPlane
from tokenweir.config import ConfigError

log = structlog.get_logger(__name__)


class Server(uvicorn.Server):
    """uvicorn, but a signal that asks it to end is a clean end: it is not raised once more afterwards."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Have SIGTERM and SIGINT end the server while inside."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def main() -> int:
    """Run; returns the exit status."""
    options = argparse.ArgumentParser(prog="python -m sidecar", description=__doc__)
    options.add_argument("--config", type=Path, default=Path("tokenweir.yaml"), help="default: %(default)s")
    try:
        return asyncio.run(serve(options.parse_args().config))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


async def serve(path: Path) -> int:
    """Serve the admin API and drive the control plane. Raises ConfigError."""
    open_files.raise_limit()
    plane = ControlPlane(path)
    logs.configure(plane.config.log.level)
    server = Server(
        uvicorn.Config(
            app.create(plane),
            host=plane.config.admin.address,
            port=plane.config.admin.port,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, read_again, plane)
    await server.serve()
    return 0 if server.started else 1


def read_again(plane: ControlPlane) -> None:
    """Read the configuration again; an error leaves what holds."""
    try:
        plane.reload()
    except ConfigError as error:
        log.error("configuration_not_read", problems=error.problems)
    except OSError as error:
        log.error("configuration_not_read", problems=[str(error)])
