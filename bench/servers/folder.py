"""Where the servers of a bench keep their files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that other users may enter, as nginx's workers are one; gone in the end."""
    with tempfile.TemporaryDirectory(prefix="tokenweir-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
