"""The telemetry's and the actuators' metrics: cards, containers, indicators, actions, what it all costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sidecar.clock import wall_ms
from sidecar.control_plane import ControlPlane
from sidecar.telemetry.indicators import Indicator, deviation

PREFIX: Final = "tokenweir_sidecar_"
CARDS: Final = {
    "memory_use": ("gpu_memory", "share of the fullest card's memory in use"),
    "utilization": ("gpu_utilization", "share of time with any kernel running, mean of the cards"),
    "sm_active": ("gpu_sm_active", "share of multiprocessor time with a warp assigned, mean"),
    "tensor_active": ("gpu_tensor_active", "share of time the tensor cores work, mean"),
    "temperature": ("gpu_temperature_celsius", "of the hottest card"),
    "power": ("gpu_power_watts", "of all cards together"),
    "sm_clock": ("gpu_sm_clock_mhz", "of the slowest card"),
    "ecc_uncorrected": ("gpu_ecc_uncorrected", "double-bit errors since the driver was loaded"),
}
INDICATORS: Final = {
    "fragmentation": "kv_fragmentation",
    "context_switch": "context_switch_ms",
}
"""Those of a backend; the prediction deviation, of a model, stands with the predictor's metrics."""


def families(plane: ControlPlane) -> Iterator[Metric]:
    """All families."""
    yield from _cost(plane)
    yield from _cards(plane)
    yield from _containers(plane)
    yield from _indicators(plane)
    yield from _actions(plane)


def _cost(plane: ControlPlane) -> Iterator[Metric]:
    cost = plane.collector.cost
    for name, text, value in (
        ("cpu_share", "CPU of this process, share of one core, lately", cost.cpu_share),
        ("telemetry_looks_per_second", "requests to engines and exporters", cost.looks_per_second),
        ("telemetry_bytes_per_tick", "bytes read in one telemetry interval", cost.bytes_per_tick),
    ):
        yield GaugeMetricFamily(PREFIX + name, text, value=value)
    yield CounterMetricFamily(
        PREFIX + "blind_looks",
        "looks that this host could not make: no descriptor, memory or port left",
        value=plane.collector.fetcher.traffic.blind,
    )


def _cards(plane: ControlPlane) -> Iterator[Metric]:
    gauges = {
        name: GaugeMetricFamily(PREFIX + "backend_" + metric, text, labels=["backend"])
        for name, (metric, text) in CARDS.items()
    }
    throttled = GaugeMetricFamily(
        PREFIX + "backend_gpu_throttled", "1 while a card is slowed down", labels=["backend", "reason"]
    )
    xids = CounterMetricFamily(
        PREFIX + "backend_xid_errors", "XID errors that came up while watched", labels=["backend", "xid"]
    )
    for backend_id, member in plane.fleet.members.items():
        reading = member.record.card
        if reading is not None:
            for name, gauge in gauges.items():
                value = getattr(reading, name)
                if value is not None:
                    gauge.add_metric([backend_id], value)
            for reason in reading.throttled:
                throttled.add_metric([backend_id, reason], 1)
        for code, count in sorted(member.record.xid_counts.items()):
            xids.add_metric([backend_id, str(code)], count)
    yield from gauges.values()
    yield throttled
    yield xids


def _containers(plane: ControlPlane) -> Iterator[Metric]:
    running = GaugeMetricFamily(
        PREFIX + "backend_container_running", "1 while the engine's container runs", labels=["backend"]
    )
    for backend_id, member in plane.fleet.members.items():
        if member.record.container is not None:
            running.add_metric([backend_id], float(member.record.container.running))
    yield running


def _indicators(plane: ControlPlane) -> Iterator[Metric]:
    found: list[tuple[str, str, Indicator]] = []
    for backend_id, member in plane.fleet.members.items():
        found += [(name, backend_id, one) for name, one in member.record.indicators.now().items()]
    values = {
        name: GaugeMetricFamily(PREFIX + metric, "absent while not measured", labels=["backend"])
        for name, metric in INDICATORS.items()
    }
    alerts = GaugeMetricFamily(
        PREFIX + "indicator_alert", "1 while an indicator is beyond its limit", labels=["indicator", "of"]
    )
    for name, subject, one in found:
        if one.value is not None:
            values[name].add_metric([subject], one.value)
            alerts.add_metric([name, subject], float(one.alert))
    for model, figures in plane.completions.deviation.figures(wall_ms()).items():
        one = deviation(figures.deviation, figures.answers)
        if one.value is not None:
            alerts.add_metric(["prediction_deviation", model], float(one.alert))
    yield from values.values()
    yield alerts


def _actions(plane: ControlPlane) -> Iterator[Metric]:
    actions = CounterMetricFamily(
        PREFIX + "engine_actions", "actions on engines", labels=["backend", "action", "stage"]
    )
    for (backend_id, action, stage), count in plane.actuators.audit.counts.items():
        actions.add_metric([backend_id, action, stage], count)
    yield actions
