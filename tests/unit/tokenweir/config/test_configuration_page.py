"""docs/configuration.md: its examples work, and it explains every key."""

from __future__ import annotations

import json
import re

import pytest

from tests.documentation import blocks
from tokenweir.config import markdown, schema
from tokenweir.config.loading import parse
from tokenweir.config.models import Config
from tokenweir.config.places import sections

EXAMPLES = blocks("docs/configuration.md", "yaml", "tested")


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_is_a_configuration_that_can_be_used(number: int) -> None:
    assert parse(EXAMPLES[number], "docs/configuration.md").backends


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 3


def test_every_key_has_a_row() -> None:
    rows = set(re.findall(r"^\| `([a-z0-9_]+)` \|", markdown.tables(), re.MULTILINE))
    assert {name for _, section in sections(Config) for name in section.model_fields} <= rows


def test_every_key_is_explained() -> None:
    unexplained = re.findall(r"^\| `([a-z0-9_]+)` \|.*\|  \|$", markdown.tables(), re.MULTILINE)
    assert unexplained == []


def test_times_and_sizes_are_shown_as_people_write_them() -> None:
    tables = markdown.tables()
    assert "| `body_max` | size | `64MiB` |" in tables
    assert "| `idle` | time from 1s | `10m` |" in tables
    assert "| `interval` | time from 50ms to 5s | `500ms` |" in tables
    assert "| `crash_hold` | time | `1500ms` |" in tables
    assert "| `keep` | size from 1MiB | `256MiB` |" in tables


def test_the_schema_takes_times_and_sizes_as_people_write_them() -> None:
    sections = json.loads(schema.render())["$defs"]
    for section, key, default in (
        ("KeyConfig", "deadline", None),
        ("BreakerConfig", "hold", "5s"),
        ("PredictorConfig", "retrain", "24h"),
    ):
        found = sections[section]["properties"][key]
        assert {"string", "number"} <= {option["type"] for option in found["anyOf"]}
        assert found["default"] == default
