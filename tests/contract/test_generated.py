"""The generated halves of the contract are what the models say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenweir.contract.__main__ import GENERATED
from tokenweir.contract.record import Record
from tokenweir.contract.records import DOCUMENTS, Completion


@pytest.mark.parametrize("path", list(GENERATED), ids=lambda path: path.name)
def test_the_generated_file_is_up_to_date_with_the_models(path: Path) -> None:
    assert path.read_text() == GENERATED[path](), "run `make contract`"


@pytest.mark.parametrize("record", [*DOCUMENTS.values(), Completion], ids=lambda record: record.__name__)
def test_every_member_of_a_record_says_what_it_is(record: type[Record]) -> None:
    schema = record.model_json_schema(by_alias=True)
    shapes = {record.__name__: schema, **schema.get("$defs", {})}
    silent = {
        f"{name}.{member}"
        for name, shape in shapes.items()
        for member, value in shape.get("properties", {}).items()
        if not value.get("description")
    }
    assert silent == set()
