"""`tw:settings`, made of the configuration."""

from __future__ import annotations

from pathlib import Path

from tokenweir.config import Config
from tokenweir.config.models import KeyConfig, hash_key
from tokenweir.contract.records import (
    KeySettings,
    Limits,
    ModelSettings,
    PredictorSettings,
    SessionSettings,
    Settings,
    TransferSettings,
)
from tokenweir.secret_file import read_secret


def build(config: Config, folder: Path) -> Settings:
    """The settings document (version 0). Key files are relative to `folder`. Raises ConfigError."""
    return Settings(
        models=[
            ModelSettings(name=model.name, aliases=model.aliases, output_prior=model.output_prior)
            for model in config.models
        ],
        default_model=config.default_model,
        paths=config.paths,
        keys=[_key(key, folder) for key in config.keys],
        require_key=bool(config.keys),
        limits=Limits(
            deadline_ms=config.limits.deadline or None,
            body_ms=config.limits.body_time,
            idle_ms=config.limits.idle,
            tries=config.limits.tries,
            quarantine_ms=config.limits.quarantine,
        ),
        health=config.health,
        headers=config.headers,
        sessions=SessionSettings(
            by_user=config.sessions.by_user,
            memory_ms=config.sessions.memory,
            affinity=config.sessions.affinity,
            prefixes=config.sessions.prefixes,
            move_ms=config.sessions.move,
            transfer=TransferSettings(
                adapter=config.sessions.transfer.adapter,
                bandwidth=config.sessions.transfer.bandwidth,
                latency_ms=config.sessions.transfer.latency,
                limit_ms=config.sessions.transfer.limit,
            ),
        ),
        predictor=PredictorSettings(
            enabled=config.predictor.enabled,
            record=config.predictor.record,
            sample=config.predictor.sample,
            words=config.predictor.words,
            small_model=config.predictor.small_model,
        ),
    )


def _key(key: KeyConfig, folder: Path) -> KeySettings:
    return KeySettings(
        id=key.id,
        sha256=key.sha256
        or hash_key(read_secret(folder / (key.key_file or ""), f"keys: {key.id}: key_file")),
        models=key.models,
        max_priority=key.max_priority,
        requests_per_minute=key.requests_per_minute,
        tokens_per_minute=key.tokens_per_minute,
        deadline_ms=key.deadline or None,
        burst_exempt=key.burst_exempt,
        weight=key.weight,
    )
