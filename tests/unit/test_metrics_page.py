"""docs/metrics.md tells of every metric that a gateway has, in the gateway's own words."""

from __future__ import annotations

import re
from pathlib import Path


def told_by_the_gateway(root: Path) -> dict[str, str]:
    """Name -> what the metric says of itself, as far as that stands beside its name."""
    text = (root / "lua/tokenweir/exposition.lua").read_text()
    counters = text.partition("local COUNTERS = {")[2].partition("\n}\n")[0]
    found = {
        f"tokenweir_{name}_total": said for name, said in re.findall(r'(\w+) = \{\s*"([^"]+)"', counters)
    }
    found |= dict(re.findall(r'"(tokenweir_\w+_seconds|tokenweir_\w+_ratio)", "([^"]+)"', text))
    found |= dict(re.findall(r'"(tokenweir_\w+)", "(?:counter|gauge)",\s*"([^"]+)"', text))
    found |= dict(re.findall(r'gauge\(out, "(tokenweir_\w+)",\s*"([^"]+)"', text))
    named = set(re.findall(r'"(tokenweir_[a-z_]+[a-z])"', text))
    kinds = re.search(r"for _, kind in pairs \{ (.*?) \} do\s+local name", text)
    assert kinds
    named |= {f"tokenweir_{kind}_total" for kind in re.findall(r'"(\w+)"', kinds[1])}
    return dict.fromkeys(named, "") | found


def test_every_metric_of_the_gateway_is_on_the_page_and_none_that_is_not(root: Path) -> None:
    page = (root / "docs/metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(tokenweir_\w+)` \|[^|]*\| (.*) \|$", page, re.MULTILINE))
    made = told_by_the_gateway(root)
    assert len(made) > 50
    assert rows.keys() == made.keys()
    assert {name: said for name, said in made.items() if said and rows[name] != said} == {}
