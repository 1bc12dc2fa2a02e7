"""An error of the configuration that names the key, what is wrong with it, and a value that would do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from tokenweir.config.examples import example
from tokenweir.config.places import Section, locate, quantity, sections
from tokenweir.config.quantities import written as in_units
from tokenweir.contract.values import ID_PATTERN, PATH_PREFIX_PATTERN, PLAIN, SHA256_PATTERN

KINDS: dict[str, str] = {
    "model_type": "a section with keys of its own is wanted",
    "dict_type": "a map of keys is wanted",
    "list_type": "a list is wanted",
    "string_type": "a text is wanted",
    "bool_type": "true or false is wanted",
    "bool_parsing": "true or false is wanted",
    "int_type": "a whole number is wanted",
    "int_parsing": "a whole number is wanted",
    "int_from_float": "a whole number is wanted",
    "float_type": "a number is wanted",
    "float_parsing": "a number is wanted",
    "finite_number": "a number is wanted",
    "missing": "it is required",
    "invalid_key": "its keys are texts; put what is meant as one into quotes",
    "string_too_short": "at least {min_length} characters are wanted",
    "string_too_long": "at most {max_length} characters are wanted",
    "too_short": "at least {min_length} entries are wanted",
    "too_long": "at most {max_length} entries are wanted",
}
"""Pydantic's kinds of errors whose own text speaks of its classes."""

PATTERNS: Final[dict[str, str]] = {
    PLAIN: "control characters cannot stand in it",
    ID_PATTERN: "letters, digits and . _ - are wanted, a letter or digit first",
    SHA256_PATTERN: "64 hex digits (0-9, a-f) are wanted",
    PATH_PREFIX_PATTERN: "a path below /v1/ is wanted, like /v1/audio/ (letters, digits, . _ ~ - /)",
}
SECRET: Final = frozenset({"token", "sha256", "keys"})
"""Keys whose value may be a secret, or was pasted where its hash belongs: it is not shown."""
SHOWN: Final = 80


class ConfigError(Exception):
    """The configuration cannot be used; the text lists every problem, one a line."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.source = source
        self.problems = problems
        super().__init__(f"{source}:\n" + "\n".join(f"  - {problem}" for problem in problems))


def _path(location: Iterable[int | str]) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text or "(top level)"


def _example(location: Sequence[int | str], kind: str, root: Section) -> str:
    if location and isinstance(location[-1], int) and kind == "value_error":
        return ""  # an error of a whole entry names its keys itself
    found = example(location, root)
    return f"; for example: {found}" if found else ""


def _shown(written: Sequence[int | str], value: Any) -> str:
    """What was given, where that is no secret."""
    named = [part for part in written if isinstance(part, str)]
    if named and named[-1] in SECRET:
        return ""
    if value is None:
        return " (got nothing)"
    if not isinstance(value, str | int | float | bool):
        return ""
    text = re.sub(r"//[^/@]*@", "//...@", repr(value))
    return f" (got {text if len(text) <= SHOWN else text[:SHOWN] + '...'})"


def _hint(key: str, here: Iterable[Section], root: Section) -> str:
    """What may have been meant by a key that is not known at its place."""
    keys = sorted({name for section in here for name in section.model_fields})
    near = difflib.get_close_matches(key, keys, n=1)
    if near:
        return f"; did you mean `{near[0]}`?"
    longer = [name for name in keys if key in name.split("_")]
    if len(longer) == 1:
        return f"; did you mean `{longer[0]}`?"
    places = [
        f"{path}.{key}"
        for path, section in sections(root)
        if path and "[]" not in path and key in section.model_fields
    ]
    if len(places) == 1:
        return f"; did you mean `{places[0]}`?"
    return f"; its keys are {', '.join(keys)}" if keys else ""


def explain(source: str, error: ValidationError, root: Section) -> ConfigError:
    """The pydantic error as one line a problem: key, what is wrong, example; of a key that is not known,
    what may have been meant. `root`: what was to be read."""
    return ConfigError(source, describe(error.errors(include_url=False), root))


BOUNDS: Final = {"greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most")}


def what_is_wrong(item: Mapping[str, Any], kind: str | None = None) -> str:
    """What is wrong, in our words, by one of pydantic's error details; `kind` of quantity the value is."""
    context = item.get("ctx", {})
    if kind and item["type"] in BOUNDS:
        member, words = BOUNDS[item["type"]]
        return f"must be {words} {in_units(kind, round(context[member]))}"
    if found := PATTERNS.get(str(context.get("pattern", ""))):
        return found
    if context.get("min_length") == 1:
        return "it must not be empty"
    if found := KINDS.get(item["type"]):
        return found.format_map(context)
    text: str = item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return text


def describe(details: Iterable[Mapping[str, Any]], root: Section) -> list[str]:
    """The lines of `explain` for pydantic's error details. Of a value that may be this or that, and is
    neither, one line tells both."""
    problems: list[str] = []
    alternatives: dict[str, list[str]] = {}
    for item in details:
        location = tuple(item["loc"])
        if item["type"] == "extra_forbidden":
            key = str(location[-1])
            written, here = locate(root, location[:-1])
            hint = _hint(key, here, root)
            problems.append(f"`{_path([*written, key])}` is not a key of the configuration{hint}")
            continue
        if not location and item["type"] == "value_error":
            problems += what_is_wrong(item).splitlines()  # of the whole: each line names its keys itself
            continue
        written, _ = locate(root, location)
        path = _path(written)
        kind = quantity(root, location)
        alternatives.setdefault(path, []).append(what_is_wrong(item, kind))
        value = item.get("input")
        if kind and item["type"] in BOUNDS and isinstance(value, int):
            value = in_units(kind, value)
        shown = "" if item["type"] == "missing" else _shown(written, value)
        line = f"`{path}`: {', or '.join(alternatives[path])}{shown}{_example(written, item['type'], root)}"
        if len(alternatives[path]) > 1:
            problems[-1] = line
        else:
            problems.append(line)
    return problems
