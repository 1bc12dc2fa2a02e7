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
                raise ConfigError(variable, [f"`{part}` is no section"])
        try:
            at[path[-1]] = yaml.safe_load(text)
        except yaml.YAMLError:
            at[path[-1]] = text
        used[".".join(path)] = variable
    return used


def parse(text: str, source: str, environment: Mapping[str, str] | None = None) -> Config:
    """The configuration of a YAML text, with the environment's overrides.

    Raises ConfigError, which names every wrong key, what is wrong, and an example.
    """
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(source, [f"not valid YAML{where}: {getattr(error, 'problem', error)}"]) from None
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
        text = path.read_text()
    except FileNotFoundError:
        raise ConfigError(
            str(path), ["no such file; the shortest that works is\n      backends: [http://10.0.0.11:8000]"]
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), [f"cannot be read: {error}"]) from None
    return parse(text, str(path), os.environ if environment is None else environment)
