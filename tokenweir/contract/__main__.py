"""`python -m tokenweir.contract`: writes the generated files anew."""

from __future__ import annotations

from pathlib import Path

from tokenweir.config import markdown as configuration
from tokenweir.config import schema
from tokenweir.contract import lua, markdown

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {
    ROOT / "lua/tokenweir/contract.lua": lua.render,
    ROOT / "docs/contract.md": markdown.render,
    ROOT / "docs/tokenweir.schema.json": schema.render,
    ROOT / "docs/configuration.md": configuration.render,
}


def main() -> None:
    """Write every generated file."""
    for path, render in GENERATED.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render())


if __name__ == "__main__":
    main()
