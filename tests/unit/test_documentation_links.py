"""What the documentation points to is there: pages, headings, source files, settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tokenweir.config.models import Config
from tokenweir.config.places import sections

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "bench/README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("lua", "sidecar", "tokenweir", "model", "bench", "emulator", "kv_agent")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """A heading as a link names it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("https://"):
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if heading:
            assert heading in {anchor(line) for line in re.findall(r"^#+ (.*)$", target.read_text(), re.M)}, (
                link
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_source_file_that_is_named_is_there(page: Path) -> None:
    for name in re.findall(r"`([\w/]+\.(?:lua|py))`", prose(page)):
        assert any(str(path).endswith(f"/{name}") for path in SOURCES), name


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "contract.md"], ids=lambda page: page.name
)
def test_every_setting_that_is_named_is_one(page: Path) -> None:
    known = {path: set(section.model_fields) for path, section in sections(Config)}
    for section, key in re.findall(r"`([a-z_]+(?:\[\])?(?:\.[a-z_]+)*)\.([a-z_]+)`", prose(page)):
        if section in known and key not in {"lua", "py"}:
            assert key in known[section], f"{section}.{key}"
