"""How many files nginx's workers may open."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tokenweir.render import nginx


@pytest.mark.parametrize(
    ("capabilities", "raises"), [("000001ffffffffff", True), ("00000000a80425fb", False)]
)
def test_the_capability_tells_whether_limits_can_be_raised(
    tmp_path: Path, capabilities: str, raises: bool
) -> None:
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    assert nginx.may_raise_limits(tmp_path / "status") is raises


def test_who_may_not_raise_the_limit_stays_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nginx, "may_raise_limits", lambda: False)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert nginx.open_files(16_384) == 4096


def test_who_may_raise_it_gets_two_for_each_connection_and_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nginx, "may_raise_limits", lambda: True)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert nginx.open_files(16_384) == 2 * 16_384 + 1024
