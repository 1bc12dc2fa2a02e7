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


class QueueOrder(StrEnum):
    """In which order waiting requests are served; see `lua/tokenweir/core/queue`."""

    FAIR = "fair"
    """By fair-queueing tags: keys share alike, short work first, by the weights of class and key."""
    FIFO = "fifo"
    """As they came."""
    SCORE = "score"
    """As the policy `hybrid` scores them: short outputs first, each as they came."""


class QueueTrigger(StrEnum):
    """When a request has to wait."""

    ROOM = "room"
    """No backend has room for it, as the policy reckons."""
    MEMORY = "memory"
    """The article's: every backend's memory use is over the threshold. Or no backend has room."""


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


class TransferAdapter(StrEnum):
    """How the KV cache of a session that moves gets to its new backend."""

    NONE = "none"
    """Not at all: the prompt is computed anew."""
    LMCACHE = "lmcache"
    """LMCache's controller moves it between the instances in the engines."""
    VLLM = "vllm"
    """The old engine hands it on as in vLLM's disaggregated serving (`kv_transfer_params`)."""
    AGENT = "agent"
    """Agents in the engines send it to each other (`kv_agent/`, torch.distributed)."""


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    CLIENT_GONE = "client_gone"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_BROKE = "upstream_broke"
    REFUSED = "refused"
    TIMEOUT = "timeout"
