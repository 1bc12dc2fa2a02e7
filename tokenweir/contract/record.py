"""What every record of the contract is."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from tokenweir.contract import names


class Record(BaseModel):
    """A record of the contract: unknown members are ignored, so an older reader survives a newer writer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Document(Record):
    """A record that stands under a key of its own and carries the schema number."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    schema_: Annotated[
        int, Field(alias="schema", description="of the contract; a reader refuses another than its own")
    ] = names.SCHEMA

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """The document of a text out of Redis. Raises ValueError where it is none, of another schema, or has
        a value out of its range."""
        document = cls.model_validate_json(text)
        if document.schema_ != names.SCHEMA or "schema_" not in document.model_fields_set:
            raise ValueError(f"not a document of schema {names.SCHEMA}")
        return document

    def dump(self) -> str:
        """The JSON text that goes into Redis."""
        return self.model_dump_json(by_alias=True)
