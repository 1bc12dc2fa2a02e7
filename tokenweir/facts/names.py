"""How people spell the names of GPUs and models, brought to one form."""

import re
from collections.abc import Iterable


class UnknownFactError(LookupError):
    """A GPU, model or precision that the table does not hold. The message lists what it holds."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(self.known)}")


def canonical(name: str) -> str:
    """Lower case, words joined by single dashes: `NVIDIA A100-SXM4-80GB` -> `nvidia-a100-sxm4-80gb`."""
    return re.sub(r"[^a-z0-9.]+", "-", name.strip().lower()).strip("-")
