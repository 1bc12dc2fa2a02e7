"""The JSON Schema of `tokenweir.yaml`, for editors: `docs/tokenweir.schema.json`."""

from __future__ import annotations

import json

from tokenweir.config.models import Config


def render() -> str:
    """The text of the schema file. A backend, a model, a container or weights may also be
    written as a bare string."""
    schema = Config.model_json_schema()
    schema["title"] = "tokenweir.yaml"
    for name in ("BackendConfig", "ModelConfig", "DockerConfig", "WeightsConfig"):
        schema["$defs"][name] = {"anyOf": [{"type": "string"}, schema["$defs"][name]]}
    quantity = {"anyOf": [{"type": "string", "pattern": r"^\s*[0-9.]+\s*[A-Za-z]*\s*$"}, {"type": "number"}]}
    for section, keys in {
        "LimitConfig": ("body_max", "body_memory", "deadline", "idle", "quarantine", "drain"),
        "QueueConfig": ("pass_for", "max_wait", "max_bytes"),
        "QueueClassConfig": ("max_wait", "max_bytes"),
        "HighClassConfig": ("max_wait", "max_bytes"),
        "LowClassConfig": ("max_wait", "max_bytes"),
        "TelemetryConfig": ("interval", "timeout"),
        "KeyConfig": ("deadline",),
        "DockerConfig": ("grace",),
        "ActuatorConfig": ("timeout",),
    }.items():
        options = schema["$defs"][section].get("anyOf", [schema["$defs"][section]])
        properties = options[-1]["properties"]
        for key in keys:
            member = properties[key]
            properties[key] = {
                **quantity,
                "description": member.get("description", ""),
                "default": member.get("default"),
            }
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
