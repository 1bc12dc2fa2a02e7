"""What the documentation tells people to type is there: make's targets and variables, modules, options."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "bench/README.md",
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
)
MAKE = re.compile(r"(?:`|^ *)make ([a-z][a-z-]*)((?: [A-Z]+=\S+?)*)(?=[\s`\]])", re.MULTILINE)
PYTHON = re.compile(r"python3? -m ([a-z_.]+)([^`\n]*)")
MAKEFILE = (ROOT / "Makefile").read_text()
OTHERS = {"json.tool", "venv"}
"""Modules of Python itself."""


def source_of(module: str) -> str:
    """The source of what `python -m` runs, with the rest of its package."""
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin)
    files = path.parent.rglob("*.py") if path.name == "__init__.py" else [path]
    return "\n".join(file.read_text() for file in files)


def test_the_pages_name_commands() -> None:
    text = "".join((ROOT / page).read_text() for page in PAGES)
    assert len(MAKE.findall(text)) > 40
    assert len(PYTHON.findall(text)) > 10


@pytest.mark.parametrize("page", PAGES)
def test_every_target_of_make_is_there_with_its_variables(page: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    for target, variables in MAKE.findall((ROOT / page).read_text()):
        bench = target.removeprefix("bench-")
        if bench not in {target, "NAME"} and bench:
            assert (ROOT / "bench" / bench / "__main__.py").exists(), target
        elif not target.startswith("bench-"):
            assert target in targets
        for variable in re.findall(r"([A-Z]+)=", variables):
            assert f"$({variable})" in MAKEFILE or f"$(if $({variable})" in MAKEFILE, variable


@pytest.mark.parametrize("page", PAGES)
def test_every_module_is_there_with_its_options(page: str) -> None:
    for module, rest in PYTHON.findall((ROOT / page).read_text()):
        if module in OTHERS or module == "pip":
            continue
        source = source_of(module)
        for option in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", rest):
            if option == "--help":
                continue
            name = option.removeprefix("--")
            assert f'"{option}"' in source or f"{name.replace('-', '_')}:" in source, f"{module} {option}"
