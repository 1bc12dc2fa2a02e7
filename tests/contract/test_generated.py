"""The generated halves of the contract are what the models say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenweir.contract.__main__ import GENERATED


@pytest.mark.parametrize("path", list(GENERATED), ids=lambda path: path.name)
def test_the_generated_file_is_up_to_date_with_the_models(path: Path) -> None:
    assert path.read_text() == GENERATED[path](), "run `make contract`"
