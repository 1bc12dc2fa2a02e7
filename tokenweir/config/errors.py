"""An error of the configuration that names the key, what is wrong with it, and a value that would do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from tokenweir.config.backends import Engine
from tokenweir.config.places import Section, locate, sections
from tokenweir.contract.values import PLAIN

EXAMPLES: dict[str, str] = {
    "backends": "backends: [http://10.0.0.11:8000, http://10.0.0.12:8000]",
    "url": "url: http://10.0.0.11:8000",
    "id": "id: gpu-a",
    "models": "models: [llama-3-8b]",
    "policy": "policy: predictive (or shadow:predictive)",
    "paths": "paths: {/v1/audio/: whisper}",
    "keys": "keys: [{id: team-a, sha256: <64 hex digits: `tokenweir key`>}]",
    "sha256": "sha256: <64 hex digits, printed by `tokenweir key`>",
    "listen": "listen: {address: 0.0.0.0, port: 8080}",
    "port": "port: 8080",
    "gpu": "gpu: A100-80G",
    "redis": "redis: {host: 127.0.0.1, port: 6379}",
    "body_max": "body_max: 64MiB",
    "body_memory": "body_memory: 4MiB",
    "deadline": "deadline: 120s",
    "idle": "idle: 10m",
    "max_wait": "max_wait: 30s",
    "max_bytes": "max_bytes: 256MiB",
    "weight": "weight: 1.0",
    "role": "role: active (active, standby or fallback)",
    "engine": f"engine: vllm ({', '.join(get_args(Engine))})",
    "dcgm_url": "dcgm_url: http://gpu-a:9400/metrics",
    "cards": "cards: [0, 1]",
    "card_labels": "card_labels: {pod: vllm-a-0}",
    "weights": "weights: /models/llama-3-8b",
    "agent": "weights: {path: /models/llama-3-8b, agent: http://gpu-a:9401, token_file: agent.token}",
    "actuator": "actuator: {docker: vllm-a}",
    "docker": "docker: {container: vllm-a, host: unix:///var/run/docker.sock}",
    "kubernetes": "kubernetes: {namespace: llm, workload: deployment/vllm-a}",
    "workload": "workload: deployment/vllm-a",
    "command": "command: {restart: [systemctl, restart, vllm-a]}",
    "webhook": "webhook: {url: https://ops.example/tokenweir, secret_file: webhook.secret}",
    "secret_file": "secret_file: webhook.secret",
    "transfer": "transfer: {adapter: lmcache, controller: http://10.0.0.5:9000}",
    "controller": "controller: http://10.0.0.5:9000",
    "adapter": "adapter: lmcache (none, lmcache, vllm or agent)",
    "instance": "transfer: {instance: lmcache_instance_1}",
    "kv_agent": "transfer: {kv_agent: http://10.0.0.11:9410}",
    "kv_bytes": "transfer: {kv_bytes: 131072}",
    "bandwidth": "bandwidth: 10GiB",
    "max_priority": "max_priority: normal",
}


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
}
"""Pydantic's kinds of errors whose own text speaks of its classes."""


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


def _example(location: Sequence[int | str], kind: str) -> str:
    if location and isinstance(location[-1], int) and kind == "value_error":
        return ""  # an error of a whole entry names its keys itself
    names = [part for part in reversed(location) if isinstance(part, str)]
    for name in names:
        example = EXAMPLES.get(name, "")
        if example and (name == names[0] or f"{names[0]}:" in example):
            return f"; for example: {example}"
    return ""


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


def describe(details: Iterable[Mapping[str, Any]], root: Section) -> list[str]:
    """The lines of `explain` for pydantic's error details."""
    problems = []
    for item in details:
        location = tuple(item["loc"])
        if item["type"] == "extra_forbidden":
            key = str(location[-1])
            written, here = locate(root, location[:-1])
            hint = _hint(key, here, root)
            problems.append(f"`{_path([*written, key])}` is not a key of the configuration{hint}")
            continue
        message = KINDS.get(item["type"]) or item["msg"].removeprefix("Value error, ").replace(
            "Input should be", "must be"
        )
        if item.get("ctx", {}).get("pattern") == PLAIN:
            message = "control characters cannot stand in it"
        if not location and item["type"] == "value_error":
            problems += message.splitlines()  # of the whole: each line names its keys itself
            continue
        written, _ = locate(root, location)
        value = item.get("input")
        shown = f" (got {value!r})" if isinstance(value, str | int | float | bool) or value is None else ""
        if item["type"] == "missing":
            shown = ""
        problems.append(f"`{_path(written)}`: {message}{shown}{_example(written, item['type'])}")
    return problems
