"""docs/api.md lists exactly the error codes that the gateway can answer with."""

from __future__ import annotations

import re
from pathlib import Path

UNREACHABLE = {"forbidden"}
"""Of pages of nginx's own that no request can bring about here."""


def codes_of_the_gateway(root: Path) -> set[str]:
    found: set[str] = set()
    for path in (root / "lua/tokenweir").glob("*.lua"):
        text = path.read_text()
        found |= set(re.findall(r'(?:errors|_M)\.send\(\d+, "([a-z_]+)"', text))
        found |= set(re.findall(r'(?:end_stream\(r, \d+|return \d+), "([a-z_]+)"', text))
        found |= set(re.findall(r'refuse\(r, control, "\d", "([a-z_]+)"', text))
        found |= set(re.findall(r'^  \[\d+\] = \{ "([a-z_]+)", "', text, re.MULTILINE))
    body = (root / "lua/tokenweir/body.lua").read_text()
    return found | set(re.findall(r'refuse\("([a-z_]+)"', body))


def codes_of_the_parser(root: Path) -> set[str]:
    found: set[str] = set()
    for name in ("body/request", "body/parameters"):
        text = (root / f"lua/tokenweir/core/{name}.lua").read_text()
        found |= set(re.findall(r'(?:return nil|refuse\(out), "([a-z_]+)",', text))
    return found


def test_every_code_of_an_error_is_in_the_table_and_none_that_is_not(root: Path) -> None:
    section = (root / "docs/api.md").read_text().partition("## Errors")[2].partition("## Streams")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if re.match(r"\| \d{3}", line)]
    listed = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}
    made = codes_of_the_gateway(root) | codes_of_the_parser(root)
    assert len(made) > 20
    assert made - listed == UNREACHABLE
    assert listed <= made
