"""What the snapshot says of the queue, from the configuration."""

from __future__ import annotations

from tokenweir.config.limits import QueueClassConfig, QueueOrderRule
from tokenweir.config.models import Config
from tokenweir.contract.records import Policy, QueueLimits, QueueOrder


def queue_limits(config: Config) -> QueueLimits:
    """The queue's order and bounds. `hybrid` has it serve by its score, unless it is told otherwise."""
    queue = config.queue
    order = QueueOrder.FAIR
    if queue.order is not QueueOrderRule.AUTO:
        order = QueueOrder(queue.order.value)
    elif config.served_policy is Policy.HYBRID:
        order = QueueOrder.SCORE
    return QueueLimits.model_validate(
        {
            "order": order,
            "trigger": queue.trigger,
            "trigger_memory": queue.trigger_memory,
            "window": queue.window,
            "pass_ms": queue.pass_for,
            "max_waiting": queue.max_waiting,
            "max_wait_ms": queue.max_wait,
            "max_bytes": queue.max_bytes,
            "early_hints": queue.early_hints,
            "classes": {"high": _of(queue.high), "normal": _of(queue.normal), "low": _of(queue.low)},
        }
    )


def _of(section: QueueClassConfig) -> dict[str, float | None]:
    return {
        "weight": section.weight,
        "floor": section.floor,
        "max_waiting": section.max_waiting,
        "max_wait_ms": section.max_wait,
        "max_bytes": section.max_bytes,
    }
