"""Route: the sidecar's own metrics for Prometheus, made when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as PrometheusCollector

from sidecar.api import control_metrics, telemetry_metrics
from sidecar.api.plane import Plane
from sidecar.api.shown_state import AT_REST, shown_state
from sidecar.clock import monotonic_ms, wall_ms
from sidecar.control_plane import ControlPlane
from tokenweir.contract.records import State

router = APIRouter(tags=["metrics"])
PREFIX = "tokenweir_sidecar_"


@router.get("/metrics", summary="Metrics in the Prometheus text format", response_class=Response)
async def metrics(plane: Plane) -> Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PlaneCollector(plane))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class PlaneCollector(PrometheusCollector):
    """The control plane's figures as metric families."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._own()
        yield from self._completions()
        yield from self._predictor()
        yield from self._backends()
        yield from control_metrics.collect(self._plane)
        yield from telemetry_metrics.families(self._plane)

    def _own(self) -> Iterator[Metric]:
        plane, now = self._plane, monotonic_ms()
        traffic = plane.collector.fetcher.traffic
        yield _counter("cpu_seconds", "CPU time of this process", time.process_time())
        yield _counter("telemetry_requests", "HTTP requests sent to engines and exporters", traffic.requests)
        yield _counter("telemetry_failures", "of these, failed", traffic.failures)
        yield _counter("telemetry_bytes", "bytes of their answers", traffic.bytes)
        yield _gauge("leading", "1 while this sidecar publishes", float(plane.leader.leading))
        yield _counter("leaderships", "how often it took the lead", plane.leader.changes)
        yield _counter("snapshots_published", "snapshots written", plane.publisher.published)
        if plane.publisher.published_at is not None:
            age = (now - plane.publisher.published_at) / 1000
            yield _gauge("snapshot_age_seconds", "since it last wrote a snapshot", age)
        yield _gauge("redis_up", "1 while Redis answers", float(plane.redis.error is None))
        yield _counter("redis_errors", "failed exchanges with Redis", plane.redis.errors)
        memory = plane.exchange.memory
        if memory is not None:
            yield _gauge("redis_memory_bytes", "memory that Redis uses", memory.used)
            yield _gauge("redis_memory_limit_bytes", "memory that Redis may use; 0: no limit", memory.limit)
        yield _gauge(
            "completion_batches_waiting",
            "batches in the stream, not counted yet",
            plane.exchange.waiting_batches,
        )
        yield _gauge("gateways", "gateways whose lease lives", len(plane.gateways.leases))
        shared = len(plane.gateways.clashes.ids(wall_ms()))
        yield _gauge("gateway_ids_shared", "ids that two gateways have, by mistake", shared)
        yield _counter("leases_refused", "leases that could not be believed", plane.gateways.refused)

    def _completions(self) -> Iterator[Metric]:
        completions = self._plane.completions
        yield _counter("completion_batches", "batches read", completions.batches)
        yield _counter("completion_records", "records counted", completions.records)
        yield _counter("completion_records_lost", "made by a gateway and never come", completions.lost)
        yield _counter(
            "completion_records_repeated", "come twice, counted once", completions.sources.repeated
        )
        poisoned = CounterMetricFamily(
            PREFIX + "completion_records_refused", "not believed", labels=["reason"]
        )
        for reason, count in completions.poisoned.items():
            poisoned.add_metric([reason], count)
        yield poisoned
        outcomes = CounterMetricFamily(
            PREFIX + "requests", "requests by backend and outcome", labels=["backend", "outcome"]
        )
        for (backend, outcome), count in completions.outcomes.items():
            outcomes.add_metric([backend, outcome], count)
        yield outcomes
        families = {
            "output_tokens_mean": "running mean of outputs, tokens",
            "output_tokens_median": "running median of outputs, tokens",
        }
        gauges = {
            name: GaugeMetricFamily(PREFIX + name, text, labels=["model"]) for name, text in families.items()
        }
        for model, stats in completions.figures.published().items():
            gauges["output_tokens_mean"].add_metric([model], stats.mean)
            gauges["output_tokens_median"].add_metric([model], stats.median)
        yield from gauges.values()

    def _predictor(self) -> Iterator[Metric]:
        completions, retraining = self._plane.completions, self._plane.retraining
        deviation = GaugeMetricFamily(
            PREFIX + "prediction_deviation",
            "|predicted - measured| / measured output tokens of the last whole minute; without a name: of "
            "all models; 0.2 is the limit",
            labels=["model"],
        )
        error = GaugeMetricFamily(
            PREFIX + "prediction_error",
            "sum of absolute errors over the sum measured, of five minutes",
            labels=["model"],
        )
        for model, figures in completions.deviation.figures(wall_ms()).items():
            if figures.deviation is not None:
                deviation.add_metric([model], figures.deviation)
            if figures.error is not None:
                error.add_metric([model], figures.error)
        yield deviation
        yield error
        recording = completions.recording
        yield _counter("features_recorded", "completions kept to train from", recording.rows)
        yield _counter("features_refused", "of completions, not readable", recording.refused)
        yield _counter("features_dropped", "of completions, not kept", recording.dropped)
        yield _counter("trainings", "trainings that ended", retraining.runs)
        yield _counter("trainings_failed", "of these, without a new model", retraining.failures)
        yield _gauge("training", "1 while a training runs", float(retraining.running))
        yield _gauge("small_model", "1 while the small model runs", float(self._plane.small_model.running))

    def _backends(self) -> Iterator[Metric]:
        plane = self._plane
        texts = {
            "backend_memory": "memory use that counts, 0 to 1; absent while not told",
            "backend_load": "running + waiting requests as the engine says",
            "backend_in_flight": "requests that the gateways have there",
            "backend_foreign": "requests there that came past the gateways",
            "backend_capacity_tokens": "KV tokens",
            "backend_scrape_failures": "failed looks in a row",
            "backend_telemetry_age_seconds": "age of the engine's figures",
        }
        families = {
            name: GaugeMetricFamily(PREFIX + name, text, labels=["backend"]) for name, text in texts.items()
        }
        states = GaugeMetricFamily(
            PREFIX + "backend_state", "1 for the state it is in", labels=["backend", "state"]
        )
        now = monotonic_ms()
        for backend in plane.fleet.decide(now):
            figures: dict[str, float | None] = {
                "backend_memory": backend.memory,
                "backend_load": backend.load,
                "backend_in_flight": plane.gateways.in_flight(backend.id),
                "backend_foreign": backend.foreign.requests,
                "backend_capacity_tokens": backend.capacity,
                "backend_scrape_failures": backend.scrape_failures,
                "backend_telemetry_age_seconds": None
                if backend.load_age_ms is None
                else backend.load_age_ms / 1000,
            }
            for name, value in figures.items():
                if value is not None:
                    families[name].add_metric([backend.id], value)
        for name, member in plane.fleet.members.items():
            shown = shown_state(plane, member)
            for state in (*(one.value for one in State), AT_REST):
                states.add_metric([name, state], float(shown == state))
        yield states
        yield from families.values()


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)
