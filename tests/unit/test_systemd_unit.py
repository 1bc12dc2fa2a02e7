"""The systemd unit in docs/operations.md: systemd takes it, and it runs what there is."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documentation import blocks

UNIT = blocks("docs/operations.md", "ini", "tested")[0]


def service() -> configparser.SectionProxy:
    """Its section `Service`."""
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # else names lose their capitals
    unit.read_string(UNIT)
    return unit["Service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "tokenweir.service"
    path.write_text(UNIT)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "tokenweir" in line]
    assert said == []


def test_what_it_starts_stays_until_it_is_stopped() -> None:
    assert (service()["Type"], service()["RemainAfterExit"]) == ("oneshot", "yes")


@pytest.mark.parametrize(
    ("when", "target"), [("ExecStart", "up"), ("ExecReload", "up"), ("ExecStop", "down")]
)
def test_it_runs_targets_of_the_makefile(root: Path, when: str, target: str) -> None:
    assert service()[when] == f"/usr/bin/make {target}"
    assert re.search(rf"^{target}:", (root / "Makefile").read_text(), re.MULTILINE)
