"""The code blocks of the documentation, so that tests can run what it tells people to run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\S+) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str, mark: str) -> list[str]:
    """The blocks of a page that open with ```` ```language mark ````, in their order."""
    text = (ROOT / page).read_text()
    return [body for kind, word, body in FENCE.findall(text) if (kind, word) == (language, mark)]
