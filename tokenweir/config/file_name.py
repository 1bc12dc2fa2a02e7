"""Names of files and folders of this machine, as people write them: `secrets/key`, `~/keys/gpu-b`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from tokenweir.contract.values import PLAIN


def _expand(name: str) -> str:
    """Put the home folder of whoever reads the configuration in place of `~`. Raises ValueError."""
    if not name.startswith("~"):
        return name
    try:
        return str(Path(name).expanduser())
    except RuntimeError:
        user = name.split("/", 1)[0]
        raise ValueError(f"no home folder of `{user}` is known; write the whole path") from None


FileName = Annotated[str, Field(pattern=PLAIN), AfterValidator(_expand)]
"""A path; one that is relative is so to the configuration file's folder, one in `~` to a home folder."""
