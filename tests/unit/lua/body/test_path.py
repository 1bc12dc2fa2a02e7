"""`lua/tokenweir/core/body/path.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def check(require: Callable[[str], Any]) -> Callable[[str], str]:
    """What is wrong with a path; empty: nothing."""
    module = require("tokenweir.core.body.path")

    def wrong(path: str) -> str:
        answer = module.check(path.encode())
        return answer[1].decode() if isinstance(answer, tuple) else ""

    return wrong


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/responses/resp_1",
        "/v1/files/a.b..c/content",
        "/v1/x/...",
        "/v1/x/%C3%A9%20",
        "/v1/.well-known",
    ],
)
def test_plain_paths_below_v1_pass(check: Callable[[str], str], path: str) -> None:
    assert check(path) == ""


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/metrics/../v1/x", "begin with /v1/"),
        ("/%761/x", "begin with /v1/"),
        ("//v1/x", "begin with /v1/"),
        ("/v1//x", "empty segment"),
        ("/v1/../metrics", "dot segment"),
        ("/v1/x/./y", "dot segment"),
        ("/v1/x/..", "dot segment"),
        ("/v1/..;/metrics", "dot segment"),
        ("/v1/%2E%2e/metrics", "escaped"),
        ("/v1/..%2Fmetrics", "escaped"),
        ("/v1/a%5c..%5cmetrics", "escaped"),
        ("/v1/..\\metrics", "backslash"),
        ("/v1/x#/y", "'#'"),
        ("/v1/x\x01", "control"),
    ],
)
def test_what_another_server_may_read_differently_is_refused(
    check: Callable[[str], str], path: str, what: str
) -> None:
    assert what in check(path)


def test_the_query_is_no_part_of_the_path(require: Callable[[str], Any]) -> None:
    of = require("tokenweir.core.body.path").of
    assert of(b"/v1/x?a=/../b?c") == b"/v1/x"
    assert of(b"/v1/x") == b"/v1/x"


def test_escaped_slashes_pass_where_they_are_asked_for(require: Callable[[str], Any]) -> None:
    module = require("tokenweir.core.body.path")
    assert module.check(b"/v1/models/org%2Fname", True) is True
    assert module.check(b"/v1/models/%2e%2e/x", True)[1].startswith(b"the path holds an escaped")
    assert module.check(b"/v1/models/../x", True)[1].startswith(b"the path holds a dot segment")
