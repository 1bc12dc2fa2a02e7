"""Reads `tokenweir.yaml` and the `TOKENWEIR_*` variables that override it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tokenweir.config.errors import ConfigError, explain
from tokenweir.config.models import Config
from tokenweir.config.places import is_text

PREFIX = "TOKENWEIR_"
NOT_CONFIG = frozenset({"CONFIG", "DATA", "GATEWAY_JSON"})
"""Variables with the prefix that are not keys of the configuration."""


class _Loader(yaml.SafeLoader):
    """A key that stands twice in a map is an error: YAML's own loader takes the last and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in lines:
                raise yaml.constructor.ConstructorError(
                    None, None, f"`{key.value}` stands in line {lines[key.value]} already", key.start_mark
                )
            lines[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


def _override(document: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Put `TOKENWEIR_LISTEN__PORT=9000` at `listen.port`; returns dotted key -> variable for error texts."""
    used: dict[str, str] = {}
    for variable, text in sorted(environment.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in NOT_CONFIG:
            continue
        path = name.lower().split("__")
        if path[0] not in Config.model_fields:
            raise ConfigError(
                variable,
                [f"`{path[0]}` is not a key of the configuration (nested: TOKENWEIR_LISTEN__PORT)"],
            )
        at = document
        for part in path[:-1]:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                whole = f"{PREFIX}{part.upper()}"
                raise ConfigError(
                    variable, [f"`{part}` is no section: set {whole} to its whole value, as YAML"]
                )
        at[path[-1]] = _value(text, is_text(Config, path))
        used[".".join(path)] = variable
    return used


def _value(text: str, plain: bool) -> Any:
    """The value of a variable: YAML, but `plain` texts may look like a number, a date or `yes`."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        return text
    return found if found is None or isinstance(found, str) or not plain else text


def _not_yaml(error: yaml.YAMLError, text: str) -> str:
    """What is wrong with a text that is no YAML, and where."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{ord(text[error.position]):04X}"
        return f"not valid YAML at line {line}: the character {character} cannot stand in it"
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    problem = str(getattr(error, "problem", error))
    if "'\\t'" in problem:
        problem = "a tab; YAML is indented with spaces"
    return f"not valid YAML{where}: {problem}"


def parse(text: str, source: str, environment: Mapping[str, str] | None = None) -> Config:
    """The configuration of a YAML text, with the environment's overrides.

    Raises ConfigError, which names every wrong key, what is wrong, and an example.
    """
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(source, [_not_yaml(error, text)]) from None
    except RecursionError:
        raise ConfigError(source, ["not a configuration: lists or maps are nested too deeply"]) from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigError(
            source, ["the file must be a map of keys; begin with `backends: [http://10.0.0.11:8000]`"]
        )
    used = _override(document, environment or {})
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        problem = explain(source, error, Config)
        if used:
            problem = ConfigError(f"{source} (with {', '.join(used.values())})", problem.problems)
        raise problem from None


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read the file at `path`; `environment` is `os.environ` unless given."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(
            str(path), ["no such file; the shortest that works is\n      backends: [http://10.0.0.11:8000]"]
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        wrong = f"not UTF-8 text: the byte 0x{error.object[error.start]:02x} in line {line}"
        raise ConfigError(str(path), [wrong]) from None
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return parse(text, str(path), os.environ if environment is None else environment)
