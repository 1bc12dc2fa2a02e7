"""Which section of the configuration a place in a document belongs to, and where a key may stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from tokenweir.config.quantities import Quantity

Section = type[BaseModel]


def _kinds(annotation: Any) -> Iterator[Any]:
    """What a value may be: the alternatives of a union, without their bounds."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for option in get_args(annotation):
            yield from _kinds(option)
    else:
        yield annotation


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _below(kinds: list[Any], part: int | str) -> list[Any] | None:
    """What may stand at an index or a key of such values; None: `part` is neither."""
    found: list[Any] = []
    for kind in kinds:
        origin, arguments = get_origin(kind), get_args(kind)
        if isinstance(part, int):
            found += _kinds(arguments[0]) if origin in {list, tuple} else ()
        elif _is_section(kind):
            found += _kinds(kind.model_fields[part].annotation) if part in kind.model_fields else ()
        elif origin is dict:
            found += _kinds(arguments[1])
    return found or None


def is_text(root: Section, path: Iterable[str]) -> bool:
    """Whether a text, or nothing, is all that may stand at a place."""
    kinds: list[Any] = [root]
    for part in path:
        kinds = _below(kinds, part) or []
    return set(kinds) - {NoneType} == {str}


def _marks(annotation: Any, metadata: Iterable[Any]) -> Iterator[str]:
    yield from (mark.kind for mark in metadata if isinstance(mark, Quantity))
    if get_origin(annotation) is Annotated:
        yield from _marks(get_args(annotation)[0], annotation.__metadata__)
    elif get_origin(annotation) in {Union, UnionType}:
        for option in get_args(annotation):
            yield from _marks(option, ())


def quantity(root: Section, location: Iterable[int | str]) -> str | None:
    """The kind of quantity that a key takes, `time` or `size`; None: none."""
    *before, key = locate(root, location)[0] or [""]
    for section in locate(root, before)[1]:
        field = section.model_fields.get(str(key))
        if field is not None:
            return next(_marks(field.annotation, field.metadata), None)
    return None


def locate(root: Section, location: Iterable[int | str]) -> tuple[list[int | str], list[Section]]:
    """The parts of an error's location that the user wrote (pydantic adds names of its own for alternatives),
    and the sections that may stand there."""
    kinds: list[Any] = [root]
    written: list[int | str] = []
    for part in location:
        below = _below(kinds, part)
        if below is not None:
            written.append(part)
            kinds = below
    return written, [kind for kind in kinds if _is_section(kind)]


def sections(root: Section, path: str = "") -> Iterator[tuple[str, Section]]:
    """Every section at any depth, with its path: `queue`, `backends[].tls`; the root's is empty."""
    yield path, root
    for name, field in root.model_fields.items():
        for kind in _kinds(field.annotation):
            items = list(_kinds(get_args(kind)[0])) if get_origin(kind) is list else []
            mark = "[]" if items else ""
            for section in filter(_is_section, items or [kind]):
                yield from sections(section, f"{path}.{name}{mark}".removeprefix("."))
