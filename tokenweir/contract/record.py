"""What every record of the contract is."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tokenweir.contract import names


class Record(BaseModel):
    """A record of the contract: unknown members are ignored, so an older reader survives a newer writer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Document(Record):
    """A record that stands under a key of its own and carries the schema number."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    schema_: Annotated[int, Field(alias="schema")] = names.SCHEMA

    def dump(self) -> str:
        """The JSON text that goes into Redis."""
        return self.model_dump_json(by_alias=True)
