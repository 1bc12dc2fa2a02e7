"""The process that keeps the logs bounded, as a part of the stack."""

from __future__ import annotations

import sys
from pathlib import Path

from tokenweir.stack.part import Part
from tokenweir.stack.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def part(settings: Settings) -> Part:
    """Ready as soon as it runs."""
    log = settings.state.log
    folders = [str(log), str(settings.state.gateway / "logs")]
    return Part(
        name="logs",
        title="log rotation",
        argv=[sys.executable, "-m", "tokenweir.stack.log_rotation", *folders],
        environment=settings.environment,
        folder=ROOT,
        log=log / "rotation.log",
        ports=[],
        ready=lambda: None,
        grace_s=3,
    )
