"""Each wrong value of each key is told with an example, and the example is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tokenweir.config import schema
from tokenweir.config.backends import BackendConfig
from tokenweir.config.errors import ConfigError, explain
from tokenweir.config.examples import example
from tokenweir.config.loading import parse
from tokenweir.config.models import Config

Document = dict[str, Any]
NEEDED: Document = {
    "backends": {"url": "http://a"},
    "models": {"name": "m"},
    "keys": {"id": "k", "sha256": "a" * 64},
}
"""What an entry must have besides the key that is looked at."""


def places(
    node: Document, definitions: Document, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    """Every key of the configuration; of lists the first entry's."""
    for option in node.get("anyOf", [node]):
        if "$ref" in option:
            option = definitions[option["$ref"].rsplit("/", 1)[1]]  # noqa: PLW2901
            yield from places(option, definitions, path)
            continue
        if "items" in option:
            yield from places(option["items"], definitions, (*path, 0))
        for name, member in option.get("properties", {}).items():
            yield (*path, name)
            yield from places(member, definitions, (*path, name))


SCHEMA = json.loads(schema.render())
PLACES = list(dict.fromkeys(places(SCHEMA, SCHEMA["$defs"])))


def document(path: tuple[str | int, ...], value: Any) -> Document:
    """A configuration in which `value` stands at `path`."""
    for at in range(len(path) - 1, -1, -1):
        part = path[at]
        value = [value] if part == 0 else {part: value}
    for section, members in NEEDED.items():
        if path[0] == section and len(path) > 2:
            value[section][0] = {**members, **value[section][0]}
    return dict(value)


def problems(document: Document) -> list[str]:
    try:
        parse(yaml.safe_dump(document), "t", {})
    except ConfigError as error:
        return error.problems
    return []


@pytest.mark.parametrize("wrong", [[[{}]], {"x": {"y": [1]}}, "", -1, 1e300, True, None, "\n"])
def test_whatever_is_wrong_with_a_key_its_line_ends_with_an_example(wrong: Any) -> None:
    assert len(PLACES) > 200
    told = 0
    for path in PLACES:
        name = ".".join(str(part) for part in path if part != 0)
        for problem in problems(document(path, wrong)):
            told += 1
            assert "Input should" not in problem
            assert "String should" not in problem
            if problem.startswith(f"`{name.replace('backends', 'backends[0]', 1)}`:"):
                assert "; for example: " in problem, (path, problem)
    assert told > 20


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_an_example_of_a_key_can_be_used(path: tuple[str | int, ...]) -> None:
    text = example(path, Config)
    assert text, path
    if "<" in text:
        return  # stands for what nobody can know
    found = yaml.safe_load(text.partition(" (")[0])
    if path[-1] in found:
        value = found[path[-1]]
        at = f"`{'.'.join(str(part) for part in path)}`".replace(".0", "[0]")
        assert not [line for line in problems(document(path, value)) if line.startswith(at)]


def test_examples_of_a_section_are_of_that_section() -> None:
    assert example(("redis", "port"), Config) == "port: 6379"
    assert example(("listen", "port"), Config) == "port: 8080"
    assert example(("listen", "tls"), Config).startswith("tls: {certificate: ")
    assert example(("backends", 0, "tls"), Config).startswith("tls: {ca: ")
    assert example(("restart", "give_up"), Config) == "give_up: 15m"
    assert example(("telemetry",), Config) == "telemetry: {interval: 500ms}"


def test_the_admin_api_tells_examples_of_a_backends_members() -> None:
    with pytest.raises(ValidationError) as caught:
        BackendConfig.model_validate({"url": "http://a", "nvml": "perhaps"})
    told = explain("t", caught.value, BackendConfig).problems
    assert told == ["`nvml`: true or false is wanted (got 'perhaps'); for example: nvml: false"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("admin: {token: abc123}", "abc123"),
        ("keys: [sk-abc123]", "abc123"),
        ("keys: sk-abc123", "abc123"),
        ("keys: [{id: a, sha256: sk-abc123}]", "abc123"),
        ("backends: ['http://me:abc123@a:1']", "abc123"),
    ],
)
def test_a_value_that_may_be_a_secret_is_not_shown(text: str, secret: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "t", {})
    assert secret not in str(caught.value)


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"policy: {'x' * 10_000}", "t", {})
    assert len(str(caught.value)) < 400
