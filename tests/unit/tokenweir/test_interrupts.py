"""Ctrl-C while a program's libraries are being read ends it with a line, not with a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tokenweir.interrupts import STATUS, ended_by_interrupt

INTERRUPTED_AT = """
import os, runpy, signal, sys
program, library = sys.argv[1:]
class Interrupt:
    def find_spec(self, name, *_):
        if name == library: os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = [program]
runpy.run_module(program, run_name='__main__')
"""


@pytest.mark.parametrize(
    ("program", "library", "told"),
    [
        ("tokenweir", "tokenweir.cli.up", "interrupted"),
        ("model", "sklearn", "interrupted; nothing was changed"),
        ("sidecar", "sidecar.control_plane", "interrupted"),
        ("sidecar.agent", "aiohttp.web", "interrupted"),
        ("emulator", "emulator.engine", "interrupted"),
    ],
)
def test_a_program_is_ended_while_it_reads_its_libraries(
    root: Path, program: str, library: str, told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, program, library],
        cwd=root,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (STATUS, "", told)


def test_afterwards_an_interrupt_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ended_by_interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_hears_no_interrupts_goes_on_hearing_none() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ended_by_interrupt():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
