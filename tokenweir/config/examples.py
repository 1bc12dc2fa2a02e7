"""A value that would do, for each key of the configuration: the end of an error's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

import yaml

from tokenweir.config.backends import Engine
from tokenweir.config.places import Section
from tokenweir.config.quantities import KIND, written

EXAMPLES: Final[dict[str, str]] = {
    "backends": "backends: [http://10.0.0.11:8000, http://10.0.0.12:8000]",
    "url": "url: http://10.0.0.11:8000",
    "id": "id: gpu-a",
    "name": "name: llama-3-8b",
    "aliases": "aliases: [gpt-4o-mini]",
    "facts": "facts: llama-3-8b",
    "fallback": "fallback: llama-3.2-1b",
    "output_prior": "output_prior: 200",
    "models": "models: [llama-3-8b]",
    "default_model": "default_model: llama-3-8b",
    "policy": "policy: predictive (or shadow:predictive)",
    "paths": "paths: {/v1/audio/: whisper}",
    "keys": "keys: [{id: team-a, sha256: <64 hex digits: `tokenweir key`>}]",
    "sha256": "sha256: <64 hex digits, printed by `tokenweir key`>",
    "key_file": "key_file: secrets/team-a",
    "listen": "listen: {address: 0.0.0.0, port: 8080}",
    "listen.port": "port: 8080",
    "listen.workers": "workers: auto (or 4)",
    "metrics_port": "metrics_port: 9080",
    "trusted_proxies": "trusted_proxies: [10.0.0.5, 10.1.0.0/16]",
    "cors_origins": "cors_origins: [https://chat.example]",
    "listen.tls": "tls: {certificate: certificates/server.pem, key: certificates/server.key}",
    "certificate": "certificate: certificates/server.pem",
    "key": "key: certificates/server.key",
    "admin": "admin: {address: 0.0.0.0, token_file: secrets/admin-token}",
    "token": "token_file: secrets/admin-token",
    "token_file": "token_file: secrets/token",
    "gpu": "gpu: A100-80G",
    "precision": "precision: {rule: auto}",
    "backends.precision": "precision: fp8",
    "kv_capacity": "kv_capacity: 450000",
    "backends.context": "context: 8192",
    "concurrency": "concurrency: 64",
    "metrics_url": "metrics_url: http://10.0.0.11:8000/metrics",
    "api_key_file": "api_key_file: secrets/gpu-b",
    "host_header": "host_header: gpu-b.example",
    "backends.tls": "tls: {ca: certificates/own-ca.pem, server_name: gpu-b.example}",
    "ca": "ca: certificates/own-ca.pem",
    "server_name": "server_name: gpu-b.example",
    "group": "group: rack-1",
    "redis": "redis: {host: 127.0.0.1, port: 6379}",
    "gateway_user": "gateway_user: gateway",
    "gateway_password_file": "gateway_password_file: secrets/redis-gateway",
    "sidecar_user": "sidecar_user: sidecar",
    "sidecar_password_file": "sidecar_password_file: secrets/redis-sidecar",
    "deadline": "deadline: 120s",
    "weight": "weight: 1.0",
    "role": "role: active (active, standby or fallback)",
    "engine": f"engine: vllm ({', '.join(get_args(Engine))})",
    "dcgm_url": "dcgm_url: http://gpu-a:9400/metrics",
    "cards": "cards: [0, 1]",
    "card_labels": "card_labels: {pod: vllm-a-0}",
    "weights": "weights: /models/llama-3-8b",
    "path": "path: /models/llama-3-8b",
    "agent": "weights: {path: /models/llama-3-8b, agent: http://gpu-a:9401, token_file: agent.token}",
    "actuator": "actuator: {docker: vllm-a}",
    "docker": "docker: {container: vllm-a, host: unix:///var/run/docker.sock}",
    "docker.container": "container: vllm-a",
    "docker.host": "host: unix:///var/run/docker.sock",
    "kubernetes": "kubernetes: {namespace: llm, workload: deployment/vllm-a}",
    "pod": "pod: vllm-a-0",
    "selector": "selector: app=vllm-a",
    "workload": "workload: deployment/vllm-a",
    "container": "container: vllm",
    "kubeconfig": "kubeconfig: secrets/kubeconfig",
    "context": "context: production",
    "command": "command: {restart: [systemctl, restart, vllm-a]}",
    "command.restart": "restart: [systemctl, restart, vllm-a]",
    "start": "start: [systemctl, start, vllm-a]",
    "stop": "stop: [systemctl, stop, vllm-a]",
    "apply": 'apply: [/usr/local/bin/vllm-args, vllm-a, "{arguments}"]',
    "folder": "folder: /etc/tokenweir",
    "webhook": "webhook: {url: https://ops.example/tokenweir, secret_file: webhook.secret}",
    "webhook.url": "url: https://ops.example/tokenweir",
    "secret_file": "secret_file: webhook.secret",
    "transfer": "transfer: {adapter: lmcache, controller: http://10.0.0.5:9000}",
    "controller": "controller: http://10.0.0.5:9000",
    "adapter": "adapter: lmcache (none, lmcache, vllm or agent)",
    "instance": "transfer: {instance: lmcache_instance_1}",
    "kv_agent": "transfer: {kv_agent: http://10.0.0.11:9410}",
    "kv_bytes": "transfer: {kv_bytes: 131072}",
    "bandwidth": "bandwidth: 10GiB",
    "max_priority": "max_priority: normal",
    "requests_per_minute": "requests_per_minute: 60",
    "tokens_per_minute": "tokens_per_minute: 100000",
    "gateway_id": "gateway_id: gateway-a",
    "standby.stop": "stop: false",
    "ramp.start": "start: 0.05",
}
"""By a key's name, or by its section and name where the name alone would not do. What is not here is made of
the key's default and kind."""

Schema = dict[str, Any]


def example(written_at: Sequence[int | str], root: Section) -> str:
    """`port: 8080` for a place of the configuration; empty where it names no key."""
    names = [part for part in written_at if isinstance(part, str)]
    for inner in range(len(names), 0, -1):
        name = names[inner - 1]
        found = EXAMPLES.get(".".join(names[max(0, inner - 2) : inner])) or EXAMPLES.get(name, "")
        if inner == len(names) and not found:
            found = _derived(names, root)
        if found and (inner == len(names) or f"{names[-1]}:" in found):
            return found
    return ""


def _derived(names: Sequence[str], root: Section) -> str:
    schema = root.model_json_schema()
    node: Schema | None = schema
    for name in names:
        node = _member(node, name, schema.get("$defs", {})) if node else None
    if node is None:
        return ""
    text = _value(node, schema.get("$defs", {}))
    return f"{names[-1]}: {text}" if text else ""


def _options(node: Schema, definitions: Schema) -> list[Schema]:
    """What a node may be: its alternatives with their references followed, and the entries of lists."""
    if "$ref" in node:
        node = definitions[node["$ref"].rsplit("/", 1)[1]] | {k: v for k, v in node.items() if k != "$ref"}
    if "anyOf" in node:
        return [found for option in node["anyOf"] for found in _options(option, definitions)]
    return [node, *_options(node["items"], definitions)] if "items" in node else [node]


def _member(node: Schema, name: str, definitions: Schema) -> Schema | None:
    for option in _options(node, definitions):
        if name in option.get("properties", {}):
            return dict(option["properties"][name])
    return None


def _value(node: Schema, definitions: Schema) -> str:
    options = _options(node, definitions)
    kind = next((str(option[KIND]) for option in options if KIND in option), "")
    default = node.get("default")
    if isinstance(default, dict):
        name, value = next(iter(default.items()))
        below = _member(node, name, definitions)
        return f"{{{name}: {_value({**(below or {}), 'default': value}, definitions)}}}"
    if default not in {None, ""}:
        return written(kind, default) if kind else _plain(default)
    for option in options:
        for found in (option.get("const"), *option.get("enum", [])[:1]):
            if found is not None:
                return _plain(found)
        if kind:
            return "30s" if kind == "time" else "64MiB"
        if option.get("type") in {"integer", "number"}:
            return _plain(option.get("minimum") or 1)
    return ""


def _plain(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
