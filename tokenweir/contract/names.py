"""The names of the Redis keys and the few numbers that both sides must agree on."""

from __future__ import annotations

from typing import Final

SCHEMA: Final = 1
"""Version of every document; a reader keeps its old copy when it meets another."""

SNAPSHOT: Final = "tw:snapshot"
SETTINGS: Final = "tw:settings"
STATS: Final = "tw:stats"
GATEWAYS: Final = "tw:gateways"
"""Sorted set of gateway ids by the wall time (ms) of their last lease."""
GATEWAY: Final = "tw:gateway:"
"""Prefix of a gateway's lease; the id follows."""
COMPLETIONS: Final = "tw:completions"
"""Capped stream; one entry is a batch, with the fields below."""
COMPLETIONS_GROUP: Final = "sidecar"
COMPLETIONS_BATCH: Final = "batch"
"""Field: a JSON array of completion records."""
COMPLETIONS_SOURCE: Final = "source"
"""Field: who wrote the batch, one name per gateway worker and start (`<gateway>:<pid>:<start>`)."""
COMPLETIONS_FIRST: Final = "first"
"""Field: how many records this source had made before this batch, those that it had to drop included. A gap
is a loss, an overlap a batch sent twice."""
KNOWN_SESSIONS: Final = "tw:sessions:known"
"""Stream of the sessions that gateways serve, for level 1 of the breaker: an entry is a batch of hashes."""
KNOWN_SESSIONS_BATCH: Final = "hashes"
"""Field: the hashes, 8 bytes each."""
KNOWN_SESSIONS_GATEWAY: Final = "gateway"
"""Field: the id of the gateway that wrote the batch."""
SESSION_MOVES: Final = "tw:session:moves"
"""Stream of sessions that do not live where the ring puts them, and of responses and who made them, applied
in order by every gateway: an entry is a batch of records (`lua/tokenweir/moves.lua`)."""
SESSION_MOVES_BATCH: Final = "moves"
"""Field: the records, one after the other."""
LEADER: Final = "tw:leader"
FENCE: Final = "tw:leader:fence"
SIDECARS: Final = "tw:sidecar:"
"""Prefix of a sidecar's heartbeat; the id follows."""
CHANGES: Final = "tw:changes"
"""What the admin API changed, merged by every sidecar into its own file."""
CONTROL: Final = "tw:control"
"""What the leader's decisions remember: ramps, levels, restarts, GPUs taken out. Another sidecar goes on from
it."""
PREDICTOR_CURRENT: Final = "tw:predictor:current"
"""Which model predicts output lengths, and which came before it."""
PREDICTOR_MODEL: Final = "tw:predictor:model:"
"""Prefix of an exported model; its version follows."""
PREDICTOR_SEEN: Final = "tw:predictor:seen:"
"""Prefix of the digests of what a model was trained from (uint32); its version follows. Sidecars only."""
HISTORIES: Final = "tw:stats:histories"
"""Running figures of keys and system prompts, by which a gateway that starts need not learn them anew."""
LEARNED: Final = "tw:stats:state"
"""The estimators behind `tw:stats`, so that another sidecar goes on where this one stopped."""

KEYS: Final[dict[str, str]] = {
    "snapshot": SNAPSHOT,
    "settings": SETTINGS,
    "stats": STATS,
    "histories": HISTORIES,
    "gateways": GATEWAYS,
    "gateway": GATEWAY,
    "completions": COMPLETIONS,
    "leader": LEADER,
    "fence": FENCE,
    "sidecar": SIDECARS,
    "changes": CHANGES,
    "control": CONTROL,
    "known_sessions": KNOWN_SESSIONS,
    "session_moves": SESSION_MOVES,
    "predictor_current": PREDICTOR_CURRENT,
    "predictor_model": PREDICTOR_MODEL,
    "predictor_seen": PREDICTOR_SEEN,
    "learned": LEARNED,
}

FIELDS: Final[dict[str, str]] = {
    "batch": COMPLETIONS_BATCH,
    "source": COMPLETIONS_SOURCE,
    "first": COMPLETIONS_FIRST,
    "hashes": KNOWN_SESSIONS_BATCH,
    "gateway": KNOWN_SESSIONS_GATEWAY,
    "moves": SESSION_MOVES_BATCH,
}
"""Fields of the streams' entries."""

PRECISIONS: Final[dict[str, str]] = {
    **{"fp32": "fp32", "float32": "fp32"},
    **{"fp16": "fp16", "bf16": "fp16", "bfloat16": "fp16", "float16": "fp16", "half": "fp16"},
    **{"fp8": "fp8", "float8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"},
    **{"int8": "int8", "w8a8": "int8"},
    **{"int4": "int4", "awq": "int4", "gptq": "int4", "q4": "int4", "w4a16": "int4", "nf4": "int4"},
}
"""What people call a precision, in lower case -> the variant's name, in the snapshot and in `X-Precision`."""

LEASE_MS: Final = 3000
"""A gateway's lease expires after this long; its load disappears with it."""
LEASE_EVERY_MS: Final = 100
SNAPSHOT_EVERY_MS: Final = 500
SNAPSHOT_STALE_MS: Final = 3000
"""Age from which a gateway stops believing the snapshot's telemetry (docs/architecture.md, rule 6)."""
LEADER_LEASE_MS: Final = 2000
COMPLETIONS_BYTES: Final = 48 * 1024 * 1024
"""Bytes of batches that the stream may hold while no sidecar reads it; each gateway trims by the mean size of
its own. What a sidecar has counted it deletes."""
COMPLETIONS_MOST: Final = 20_000
"""Entries (batches) that the stream may hold, however small they are."""
BUCKETS: Final = 13
"""Power-of-two buckets of predicted remaining tokens (docs/architecture.md, rule 1)."""
KNOWN_SESSIONS_CAP: Final = 65_536
"""Entries (batches of up to `KNOWN_SESSIONS_BATCH_SIZE` sessions) that the stream of sessions keeps at most;
older ones than a session is remembered go by themselves."""
KNOWN_SESSIONS_BATCH_SIZE: Final = 1024
SESSION_MOVES_CAP: Final = 65_536
"""Entries that the stream of moves keeps at most; what is older than a move lives goes by itself."""
SESSION_MOVES_BATCH_BYTES: Final = 65_536
MAX_BACKENDS: Final = 1024
MOST_TOKENS: Final = 2**24
"""No engine has a context beyond; a longer prompt or output is an error of whoever counted."""
MAX_MODELS: Final = 256
QUEUE_WINDOW: Final = 8
"""Waiters that may at most pass the first one while no backend has room for it."""

NUMBERS: Final[dict[str, int]] = {
    "lease_ms": LEASE_MS,
    "snapshot_stale_ms": SNAPSHOT_STALE_MS,
    "completions_bytes": COMPLETIONS_BYTES,
    "completions_most": COMPLETIONS_MOST,
    "buckets": BUCKETS,
    "known_sessions_cap": KNOWN_SESSIONS_CAP,
    "known_sessions_batch_size": KNOWN_SESSIONS_BATCH_SIZE,
    "session_moves_cap": SESSION_MOVES_CAP,
    "session_moves_batch_bytes": SESSION_MOVES_BATCH_BYTES,
    "max_backends": MAX_BACKENDS,
    "most_tokens": MOST_TOKENS,
    "max_models": MAX_MODELS,
    "queue_window": QUEUE_WINDOW,
}
