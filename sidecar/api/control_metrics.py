"""The control loop's metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sidecar.control.alerts import PAGES
from sidecar.control_plane import ControlPlane

PREFIX = "tokenweir_sidecar_"


def collect(plane: ControlPlane) -> Iterator[Metric]:
    """Levels and modes by model, ramps and fitted costs by backend, alerts by kind."""
    yield from _models(plane)
    yield from _backends(plane)
    alerts = plane.loop.alerts
    standing = GaugeMetricFamily(
        PREFIX + "alert", "1 for each alert that stands", labels=["kind", "subject", "page"]
    )
    for (kind, subject), _ in alerts.standing.items():
        standing.add_metric([kind.value, subject, "yes" if kind in PAGES else "no"], 1)
    yield standing
    raised = CounterMetricFamily(PREFIX + "alerts_raised", "alerts since the start", labels=["kind"])
    for kind, count in alerts.raised.items():
        raised.add_metric([kind.value], count)
    yield raised


def _models(plane: ControlPlane) -> Iterator[Metric]:
    texts = {
        "model_level": "the highest level of the breaker that holds",
        "model_burst": "1 in burst mode",
        "model_fallback": "1 while the fallback role serves",
        "model_load": "memory use of its usable backends, by their capacity; absent while not told",
        "model_usable_backends": "backends that may get requests: active, and spares in service",
        "model_arrivals_per_second": "requests, over the last half second",
    }
    families = {
        name: GaugeMetricFamily(PREFIX + name, text, labels=["model"]) for name, text in texts.items()
    }
    for name, model in plane.loop.models.items():
        decision = model.published()
        figures: dict[str, float | None] = {
            "model_level": decision.level,
            "model_burst": float(decision.burst),
            "model_fallback": float(decision.fallback),
            "model_load": decision.load,
            "model_usable_backends": model.load.usable,
            "model_arrivals_per_second": model.burst.arrivals.fast,
        }
        for family, value in figures.items():
            if value is not None:
                families[family].add_metric([name], value)
    yield from families.values()


def _backends(plane: ControlPlane) -> Iterator[Metric]:
    admit = GaugeMetricFamily(
        PREFIX + "backend_admit", "share of its fair share that it may take (ramp)", labels=["backend"]
    )
    slower = GaugeMetricFamily(
        PREFIX + "backend_cost_factor",
        "how many times slower than the table of facts it is, by the fit",
        labels=["backend"],
    )
    for name, member in plane.fleet.members.items():
        admit.add_metric([name], member.admit)
        if member.cost.fit is not None and member.cost.fit.observations:
            slower.add_metric([name], member.cost.fit.factor())
    yield admit
    yield slower
