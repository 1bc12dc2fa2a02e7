"""The JSON Schema of `tokenweir.yaml`, for editors: `docs/tokenweir.schema.json`."""

from __future__ import annotations

import json
from typing import Any

from tokenweir.config import quantities
from tokenweir.config.models import Config

QUANTITY = {"anyOf": [{"type": "string", "pattern": r"^\s*[0-9.]+\s*[A-Za-z]*\s*$"}, {"type": "number"}]}


def _quantity(member: dict[str, Any]) -> dict[str, Any] | None:
    """A key that is a size or a time, as it may be written; None of others."""
    options = member.get("anyOf", [member])
    found = next((option for option in options if quantities.KIND in option), None)
    if found is None:
        return None
    kind, default = found[quantities.KIND], member.get("default")
    bounds = {
        word: quantities.written(kind, found[name])
        for word, names in (("from", ("ge", "minimum")), ("to", ("le", "maximum")))
        for name in names
        if found.get(name, 0) > 1
    }
    return {
        "anyOf": [*QUANTITY["anyOf"], *([{"type": "null"}] if len(options) > 1 else [])],
        quantities.KIND: " ".join([kind, *(f"{word} {bound}" for word, bound in bounds.items())]),
        "description": member.get("description", ""),
        "default": default if default is None else quantities.written(kind, default),
    }


def render() -> str:
    """The text of the schema file. A backend, a model, a container or weights may also be
    written as a bare string."""
    schema = Config.model_json_schema()
    schema["title"] = "tokenweir.yaml"
    for name in ("BackendConfig", "ModelConfig", "DockerConfig", "WeightsConfig"):
        schema["$defs"][name] = {"anyOf": [{"type": "string"}, schema["$defs"][name]]}
    for section in schema["$defs"].values():
        for properties in [option.get("properties", {}) for option in section.get("anyOf", [section])]:
            for key, member in properties.items():
                properties[key] = _quantity(member) or member
    backend = schema["$defs"]["BackendConfig"]["anyOf"][1]["properties"]
    text, number = {"type": "string"}, {"type": "integer"}
    cards = {"type": "array", "items": {"anyOf": [text, number]}, "maxItems": 64}
    backend["cards"] = {
        "anyOf": [text, number, cards],
        **{key: backend["cards"][key] for key in ("description", "default")},
    }
    models = backend["models"]
    models["anyOf"] += [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
    return json.dumps(schema, indent=2) + "\n"
