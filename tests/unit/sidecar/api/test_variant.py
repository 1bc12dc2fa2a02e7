"""The body of `POST /api/backends/ID/variant`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from sidecar.api.control import VariantChange


def test_the_documented_body_is_one_and_its_defaults_are_those_told(root: Path) -> None:
    section = (root / "docs/admin-api.md").read_text().partition("## Other arguments")[2]
    body = json.loads(section.partition("```json")[2].partition("```")[0])
    assert VariantChange.model_validate(body).model_dump() == body
    assert VariantChange(arguments=["-v"]).model_dump() == {
        "arguments": ["-v"],
        "precision": "",
        "deadline_s": 600,
    }


@pytest.mark.parametrize(
    "body", [{}, {"arguments": []}, {"arguments": ["-v"] * 257}, {"arguments": "-v"}, {"arguments": ["a\0"]}]
)
def test_without_a_list_of_arguments_it_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        VariantChange.model_validate(body)
