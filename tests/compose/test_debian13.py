"""The gateway's integration tests on Debian 13: nginx 1.26 with the Lua module of that release."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

IMAGE = "tokenweir-test-debian13"
PYTEST = "python3 -m pytest -p no:cacheprovider -n 2"
SUITE = "tests/integration/gateway tests/integration/proxy"
ELSEWHERE = (
    "--ignore=tests/integration/proxy/test_predictor.py --ignore=tests/integration/proxy/test_training.py "
    "--ignore=tests/integration/proxy/test_small_model.py "
    "--deselect=tests/integration/proxy/test_early_hints_clients.py::test_node"
)
"""What needs more than this image has: the libraries that train a model, and clients from npm."""


def test_the_gateway_passes_its_tests_on_nginx_1_26(root: Path) -> None:
    dockerfile = root / "tests/compose/debian13.Dockerfile"
    with dockerfile.open("rb") as instructions:
        build = ["docker", "build", "--quiet", "--tag", IMAGE, "-"]
        subprocess.run(build, stdin=instructions, check=True, capture_output=True, timeout=400)
    mount = f"{root}:/srv/tokenweir:ro"
    done = subprocess.run(
        [
            "docker",
            "run",
            "--rm",
            "--volume",
            mount,
            IMAGE,
            "sh",
            "-c",
            f"nginx -v; {PYTEST} {SUITE} {ELSEWHERE}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert "nginx version: nginx/1.26." in done.stdout
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) > 250
    assert "skipped" not in done.stdout
