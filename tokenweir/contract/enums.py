"""The closed sets of words in the records."""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """The policies that a gateway can serve by; each is a file in `lua/tokenweir/core/policy/`."""

    ROUND_ROBIN = "round_robin"
    LEAST_CONN = "least_conn"
    LEAST_INFLIGHT = "least_inflight"
    HYBRID = "hybrid"
    PREDICTIVE = "predictive"


class Priority(StrEnum):
    """Priority classes, highest first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Role(StrEnum):
    """What a backend is for."""

    ACTIVE = "active"
    STANDBY = "standby"
    FALLBACK = "fallback"


class State(StrEnum):
    """Whether a backend may get requests; only `ready` may."""

    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"
    DOWN = "down"


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    CLIENT_GONE = "client_gone"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_BROKE = "upstream_broke"
    REFUSED = "refused"
    TIMEOUT = "timeout"
