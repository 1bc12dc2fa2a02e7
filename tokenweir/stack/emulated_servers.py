"""The emulated GPU servers: one for every backend that says `emulated: true`."""

from __future__ import annotations

import sys
from pathlib import Path

from tokenweir.config.models import BackendConfig
from tokenweir.stack.errors import StackError
from tokenweir.stack.part import Part, Port, sources_stamp
from tokenweir.stack.probes import http_ready
from tokenweir.stack.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def _argv(backend: BackendConfig) -> list[str]:
    if backend.gpu is None or not backend.models:
        raise StackError(
            f"backend {backend.id} is emulated: it needs `gpu` and `models`, for example gpu: H100"
        )
    model = next(iter(backend.models.values()))
    argv = [sys.executable, "-m", "emulator", "--host", backend.host, "--port", str(backend.port)]
    argv += ["--gpu", backend.gpu, "--model", model]
    if backend.gpus > 1:
        argv += ["--gpus", str(backend.gpus)]
    if backend.precision:
        argv += ["--precision", backend.precision]
    if backend.kv_capacity:
        argv += ["--capacity", str(backend.kv_capacity)]
    return argv


def parts(settings: Settings) -> list[Part]:
    """A process for each emulated backend."""
    found = []
    for number, backend in enumerate(settings.config.backends):
        if not backend.emulated:
            continue
        if backend.host not in LOOPBACK:
            raise StackError(
                f"backend {backend.id} is emulated, so its `url` must be on this machine, not {backend.host}"
            )
        found.append(
            Part(
                name=f"emulator-{backend.id}",
                title=f"emulated {backend.gpu} on {backend.host}:{backend.port}",
                argv=_argv(backend),
                environment=settings.environment,
                folder=ROOT,
                log=settings.state.log / f"emulator-{backend.id}.log",
                ports=[Port(backend.host, backend.port, f"backends[{number}].url")],
                ready=lambda url=backend.url: http_ready(f"{url}/health"),  # type: ignore[misc]
                stamp=sources_stamp(ROOT, "emulator", "tokenweir/facts"),
            )
        )
    return found
