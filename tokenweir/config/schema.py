"""The JSON Schema of `tokenweir.yaml`, for editors: `docs/tokenweir.schema.json`."""

from __future__ import annotations

import json

from tokenweir.config.models import Config


def render() -> str:
    """The text of the schema file. A backend or model may also be written as a bare string."""
    schema = Config.model_json_schema()
    schema["title"] = "tokenweir.yaml"
    for name in ("BackendConfig", "ModelConfig"):
        schema["$defs"][name] = {"anyOf": [{"type": "string"}, schema["$defs"][name]]}
    quantity = {"anyOf": [{"type": "string", "pattern": r"^\s*[0-9.]+\s*[A-Za-z]*\s*$"}, {"type": "number"}]}
    for section, keys in {
        "LimitConfig": ("body_max", "body_memory", "deadline", "idle", "quarantine", "drain"),
        "QueueConfig": ("max_wait", "max_bytes"),
        "TelemetryConfig": ("interval", "timeout"),
        "KeyConfig": ("deadline",),
    }.items():
        for key in keys:
            member = schema["$defs"][section]["properties"][key]
            schema["$defs"][section]["properties"][key] = {
                **quantity,
                "description": member.get("description", ""),
                "default": member.get("default"),
            }
    models = schema["$defs"]["BackendConfig"]["anyOf"][1]["properties"]["models"]
    models["anyOf"] += [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
    return json.dumps(schema, indent=2) + "\n"
