"""What a container runtime says of an engine's container, as readings.

An end for want of memory is level 3's surest sign: Docker sends an `oom` event and sets `OOMKilled`;
Kubernetes ends the container with the reason `OOMKilled`. The host's own killer leaves only status 137
without anybody having asked for it.
https://docs.docker.com/reference/api/engine/  (GET /events, GET /containers/{id}/json)
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sidecar.telemetry.readings import ContainerReading

MISSING: Final = "missing"
KILLED: Final = 137
SAME_END_MS: Final = 1500
"""Kubernetes tells moments in whole seconds."""
ENDING_SIGNALS: Final = {"1", "2", "3", "6", "9", "15"}
"""Those that end a process; others (SIGHUP aside) are messages to it."""


class ContainerState:
    """One Docker container: what was inspected, brought up to date by events."""

    def __init__(self) -> None:
        self.reading: ContainerReading | None = None
        self._ordered = False
        """A signal that ends it was sent since it last started."""
        self._oom = False
        """The kernel killed a process in it since it last started."""

    def inspected(self, attributes: Mapping[str, Any], now: float, wall: float) -> ContainerReading:
        """Take an inspection, at monotonic `now` and wall `wall` ms."""
        state = attributes.get("State") or {}
        known = self.reading
        status = str(state.get("Status") or "unknown")
        started_at, finished_at = wall_ms(state.get("StartedAt")), wall_ms(state.get("FinishedAt"))
        ended = status in {"exited", "dead", "restarting"}
        reading = ContainerReading(
            at=now,
            source="docker",
            state=status,
            started_at=started_at,
            restarts=int(attributes.get("RestartCount") or 0),
            error=str(state.get("Error") or "")[:200],
            oom_at=known.oom_at if known is not None else None,
        )
        if ended:
            reading = replace(
                reading,
                exit_code=state.get("ExitCode"),
                oom_killed=bool(state.get("OOMKilled")) or self._oom,
                ordered=self._ordered,
                ended_at=now - max(wall - finished_at, 0.0) if finished_at is not None else now,
            )
            if known is not None and not known.running and known.ended_at is not None:
                # Already told by its event, at its moment.
                reading = replace(reading, ended_at=known.ended_at, ordered=known.ordered)
        elif known is not None:
            unseen = known.running and known.started_at is not None and started_at != known.started_at
            reading = replace(
                reading,
                exit_code=None if unseen else known.exit_code,
                oom_killed=False if unseen else known.oom_killed,
                ordered=False if unseen else known.ordered,
                # It ended and was started again while nobody looked: how is not known.
                ended_at=now if unseen else known.ended_at,
            )
        self.reading = reading
        return reading

    def missing(self, now: float) -> ContainerReading:
        """There is no such container."""
        known = self.reading
        self.reading = (
            ContainerReading(at=now, source="docker", state=MISSING)
            if known is None
            else replace(known, at=now, state=MISSING)
        )
        return self.reading

    def happened(self, action: str, attributes: Mapping[str, str], now: float) -> bool:
        """Take an event; returns whether the reading changed."""
        known = self.reading or ContainerReading(at=now, source="docker", state="unknown")
        if action == "oom":
            self._oom = True
            self.reading = replace(known, at=now, oom_at=now)
        elif action == "kill":
            self._ordered = self._ordered or attributes.get("signal", "15") in ENDING_SIGNALS
            return False
        elif action == "die":
            code = attributes.get("exitCode", "")
            self.reading = replace(
                known,
                at=now,
                state="exited",
                exit_code=int(code) if code.lstrip("-").isdigit() else None,
                oom_killed=self._oom,
                ordered=self._ordered,
                ended_at=now,
            )
        elif action == "start":
            self._ordered = self._oom = False
            self.reading = replace(known, at=now, state="running", started_at=None)
        elif action in {"pause", "unpause"}:
            self.reading = replace(known, at=now, state="paused" if action == "pause" else "running")
        elif action == "destroy":
            self.reading = replace(known, at=now, state=MISSING)
        else:
            return False
        return True


def of_pod(
    pods: Sequence[Any], container: str | None, before: ContainerReading | None, now: float, wall: float
) -> ContainerReading:
    """The engine's container in the pods that are a backend's; of several the one that ended last."""
    readings = [reading for pod in pods if (reading := _of_one_pod(pod, container, now, wall)) is not None]
    if not readings:
        if before is None:
            return ContainerReading(at=now, source="kubernetes", state=MISSING)
        return replace(before, at=now, state=MISSING)
    newest = max(readings, key=lambda reading: (reading.ended_at or float("-inf"), reading.started_at or 0))
    if before is not None and _same_end(before, newest):
        newest = replace(newest, ended_at=before.ended_at)
    oom_at = before.oom_at if before is not None else None
    return replace(newest, oom_at=newest.ended_at if newest.oom_killed else oom_at)


def _same_end(one: ContainerReading, other: ContainerReading) -> bool:
    """Whether two readings tell of one end: its moment, by another host's clock, wavers from look to look."""
    if one.ended_at is None or other.ended_at is None or one.exit_code != other.exit_code:
        return False
    return abs(one.ended_at - other.ended_at) < SAME_END_MS


def _of_one_pod(pod: Any, container: str | None, now: float, wall: float) -> ContainerReading | None:
    statuses = pod.status.container_statuses or []
    status = next((one for one in statuses if container in {None, one.name}), None)
    leaving = pod.metadata.deletion_timestamp is not None
    if status is None:
        return ContainerReading(at=now, source="kubernetes", state="created", error=pod.status.reason or "")
    state, last = status.state, status.last_state
    ended = state.terminated or (last.terminated if last is not None else None)
    word, error = "created", ""
    if state.running is not None:
        word = "running"
    elif state.terminated is not None:
        word = "exited"
    elif state.waiting is not None:
        error = state.waiting.reason or ""
        word = "restarting" if error == "CrashLoopBackOff" else "created"
    started = state.running.started_at if state.running is not None else None
    reading = ContainerReading(
        at=now,
        source="kubernetes",
        state=word,
        restarts=status.restart_count or 0,
        started_at=started.timestamp() * 1000 if started is not None else None,
        error=error,
    )
    if ended is None:
        return reading
    out_of_memory = ended.reason == "OOMKilled"
    finished = ended.finished_at
    return replace(
        reading,
        exit_code=ended.exit_code,
        oom_killed=out_of_memory,
        # 137 without that reason is the kubelet's doing: a probe that failed, a pod that had to go.
        ordered=leaving or (ended.exit_code == KILLED and not out_of_memory),
        ended_at=now - max(wall - finished.timestamp() * 1000, 0.0) if finished is not None else now,
    )


def wall_ms(text: Any) -> float | None:
    """A moment as Docker writes it, `2026-01-02T03:04:05.123456789Z`, in wall ms; None for "never"."""
    if not isinstance(text, str) or not text or text.startswith("0001-"):
        return None
    head, _, rest = text.partition(".")
    zone = "+00:00"
    digits = rest
    for mark in ("Z", "+", "-"):
        if mark in rest:
            digits, _, tail = rest.partition(mark)
            zone = "+00:00" if mark == "Z" else mark + tail
            break
    head = head.removesuffix("Z")
    try:
        moment = datetime.fromisoformat(f"{head}.{digits[:6]:0<6}{zone}")
    except ValueError:
        return None
    return moment.timestamp() * 1000
