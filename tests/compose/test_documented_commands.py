"""What the documentation says of Docker Compose, run against the stack."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.documentation import blocks

pytestmark = [pytest.mark.compose, pytest.mark.timeout(600)]

UP, DOWN = blocks("README.md", "sh", "compose")[0].splitlines()


def test_the_readmes_command_brings_the_stack_up_and_again_changes_nothing(stack: Any) -> None:
    before = sorted(stack.compose("ps", "--quiet").split())
    stack.documented(UP)
    assert sorted(stack.compose("ps", "--quiet").split()) == before


def test_the_readmes_last_command_takes_everything_away(stack: Any) -> None:
    other = {**os.environ, **stack.environment, "COMPOSE_PROJECT_NAME": f"{stack.project}-other"}
    stack.documented("docker compose create redis", other)
    stack.documented(DOWN, other)
    assert stack.documented("docker compose ps --all --quiet", other) == ""
    assert stack.documented(f"docker volume ls --quiet --filter name={stack.project}-other", other) == ""


@pytest.mark.parametrize("block", blocks("docs/operations.md", "sh", "compose"))
def test_the_commands_of_the_operations_page_work(stack: Any, block: str) -> None:
    said = stack.documented(block)
    if "api/fleet" in block:
        assert json.loads(said)["backends"]
