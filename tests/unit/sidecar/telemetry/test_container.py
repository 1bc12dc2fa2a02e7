"""What Docker's events and inspections, and a pod's status, say of an engine's container."""

from __future__ import annotations

import pytest

from sidecar.telemetry.container import ContainerState, wall_ms
from sidecar.telemetry.pod_watch import NOTE, PodWatch
from sidecar.telemetry.readings import Record
from tests.unit.sidecar.kubernetes_server import pod, terminated
from tokenweir.config.actuators import KubernetesConfig

WALL = wall_ms("2026-01-01T00:01:00Z")
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:30Z"}}


def inspection(status="running", started="2026-01-01T00:00:00.5Z", **state):
    return {
        "RestartCount": 0,
        "State": {
            "Status": status,
            "StartedAt": started,
            "FinishedAt": "0001-01-01T00:00:00Z",
            "ExitCode": 0,
            "OOMKilled": False,
            "Error": "",
            **state,
        },
    }


@pytest.fixture
def container():
    """A container that runs since before it was watched."""
    made = ContainerState()
    made.inspected(inspection(), 1000, WALL)
    return made


def test_a_running_container_has_not_ended(container):
    reading = container.reading
    assert (reading.state, reading.running, reading.ended_at, reading.exit_code) == (
        "running",
        True,
        None,
        None,
    )
    assert not reading.out_of_memory
    assert reading.started_at == wall_ms("2026-01-01T00:00:00.5Z")


def test_an_end_for_want_of_memory_is_seen_by_its_events(container):
    assert container.happened("oom", {}, 2000)
    assert container.happened("die", {"exitCode": "137"}, 2001)
    reading = container.reading
    assert (reading.state, reading.exit_code, reading.oom_killed) == ("exited", 137, True)
    assert (reading.oom_at, reading.ended_at, reading.out_of_memory) == (2000, 2001, True)


def test_a_worker_that_is_killed_for_memory_may_leave_the_container_alive(container):
    container.happened("oom", {}, 2000)
    reading = container.reading
    assert (reading.running, reading.oom_at, reading.ended_at) == (True, 2000, None)


def test_status_137_that_nobody_asked_for_is_taken_for_want_of_memory(container):
    container.happened("die", {"exitCode": "137"}, 2000)
    assert container.reading.out_of_memory
    assert not container.reading.oom_killed


@pytest.mark.parametrize("signal", ["9", "15"])
def test_status_137_after_a_stop_or_kill_is_not(container, signal):
    assert not container.happened("kill", {"signal": signal}, 1999)
    container.happened("die", {"exitCode": "137"}, 2000)
    assert (container.reading.ordered, container.reading.out_of_memory) == (True, False)


def test_a_signal_that_is_a_message_does_not_count_as_asked_for(container):
    container.happened("kill", {"signal": "10"}, 1999)
    container.happened("die", {"exitCode": "137"}, 2000)
    assert container.reading.out_of_memory


def test_a_crash_is_an_end_and_no_want_of_memory(container):
    container.happened("die", {"exitCode": "1"}, 2000)
    reading = container.reading
    assert (reading.exit_code, reading.out_of_memory, reading.ended_at) == (1, False, 2000)


def test_the_last_end_is_remembered_after_a_restart(container):
    container.happened("oom", {}, 2000)
    container.happened("die", {"exitCode": "137"}, 2000)
    container.happened("start", {}, 2500)
    container.inspected(inspection(started="2026-01-01T00:00:59Z"), 2600, WALL)
    reading = container.reading
    assert (reading.running, reading.exit_code, reading.out_of_memory, reading.ended_at) == (
        True,
        137,
        True,
        2000,
    )
    container.happened("die", {"exitCode": "0"}, 9000)
    assert not container.reading.out_of_memory


def test_a_start_forgets_what_was_asked_of_the_one_before(container):
    container.happened("kill", {"signal": "15"}, 2000)
    container.happened("die", {"exitCode": "0"}, 2000)
    container.happened("start", {}, 2100)
    container.happened("die", {"exitCode": "137"}, 3000)
    assert container.reading.out_of_memory


def test_an_inspection_confirms_what_the_events_said(container):
    container.happened("die", {"exitCode": "137"}, 2000)
    ended = inspection("exited", ExitCode=137, OOMKilled=True, FinishedAt="2026-01-01T00:00:58Z")
    reading = container.inspected(ended, 2050, WALL)
    assert (reading.oom_killed, reading.ended_at, reading.ordered) == (True, 2000, False)


def test_one_found_dead_ended_when_it_says():
    ended = inspection("exited", ExitCode=137, OOMKilled=True, FinishedAt="2026-01-01T00:00:50Z")
    reading = ContainerState().inspected(ended, 100_000, WALL)
    assert (reading.out_of_memory, reading.ended_at) == (True, 90_000)


def test_an_end_that_nobody_saw_is_told_without_its_cause(container):
    reading = container.inspected(inspection(started="2026-01-01T00:00:59Z"), 5000, WALL)
    assert (reading.running, reading.ended_at, reading.exit_code) == (True, 5000, None)
    assert not reading.out_of_memory


def test_a_container_that_is_gone_is_missing(container):
    container.happened("destroy", {}, 2000)
    assert (container.reading.state, container.reading.running) == ("missing", False)
    assert ContainerState().missing(7).state == "missing"


def test_a_paused_container_is_told(container):
    container.happened("pause", {}, 2000)
    assert container.reading.state == "paused"
    container.happened("unpause", {}, 3000)
    assert container.reading.state == "running"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00.123456789Z", 0.123456),
        ("2026-01-01T02:00:00.5+02:00", 0.5),
        ("2026-01-01T00:00:01.1Z", 1.1),
    ],
)
def test_dockers_moments_are_read_to_the_microsecond(text, seconds):
    assert wall_ms(text) == pytest.approx(wall_ms("2026-01-01T00:00:00Z") + 1000 * seconds, abs=1e-3)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "", "nonsense", None, 5])
def test_never_is_no_moment(text):
    assert wall_ms(text) is None


@pytest.fixture
def changes():
    return []


@pytest.fixture
def watch(kubernetes, tmp_path, changes):
    config = KubernetesConfig(
        namespace="llm", selector="app=vllm-a", container="vllm", kubeconfig=kubernetes.kubeconfig(tmp_path)
    )
    return PodWatch("a", config, tmp_path, Record(), changes.append)


async def test_a_pod_whose_container_ran_out_of_memory(kubernetes, watch, changes):
    kubernetes.pods["p"] = pod("p", RUNNING)
    await watch.look()
    assert (watch.record.container.state, watch.record.container.ended_at) == ("running", None)
    last = terminated("OOMKilled", 137, "2026-01-01T00:00:50Z")
    kubernetes.pods["p"] = pod("p", RUNNING, last=last, restarts=1)
    await watch.look()
    reading = watch.record.container
    assert (reading.running, reading.out_of_memory, reading.restarts, reading.exit_code) == (
        True,
        True,
        1,
        137,
    )
    assert reading.oom_at == reading.ended_at
    assert changes == ["a", "a"]
    first = reading.ended_at
    await watch.look()
    assert watch.record.container.ended_at == first
    assert changes == ["a", "a"]


async def test_a_pod_that_a_probe_has_killed_is_not_out_of_memory(kubernetes, watch):
    last = terminated("Error", 137, "2026-01-01T00:00:50Z")
    kubernetes.pods["p"] = pod("p", RUNNING, last=last, restarts=1)
    await watch.look()
    assert (watch.record.container.exit_code, watch.record.container.out_of_memory) == (137, False)


async def test_a_pod_that_keeps_crashing_is_restarting(kubernetes, watch):
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    last = terminated("Error", 1, "2026-01-01T00:00:50Z")
    kubernetes.pods["p"] = pod("p", waiting, last=last, restarts=4)
    await watch.look()
    reading = watch.record.container
    assert (reading.state, reading.error, reading.exit_code) == ("restarting", "CrashLoopBackOff", 1)


async def test_the_side_cars_of_a_pod_do_not_count(kubernetes, watch):
    kubernetes.pods["p"] = pod("p", RUNNING, container="other")
    await watch.look()
    assert watch.record.container.state == "created"


async def test_a_pod_that_is_gone_is_missing_and_keeps_its_last_end(kubernetes, watch):
    last = terminated("OOMKilled", 137, "2026-01-01T00:00:50Z")
    kubernetes.pods["p"] = pod("p", RUNNING, last=last, restarts=1)
    await watch.look()
    kubernetes.pods.clear()
    await watch.look()
    assert (watch.record.container.state, watch.record.container.out_of_memory) == ("missing", True)


async def test_an_api_that_refuses_is_said_and_the_last_reading_stays(kubernetes, watch):
    kubernetes.pods["p"] = pod("p", RUNNING)
    await watch.look()
    reading = watch.record.container
    kubernetes.forbidden = True
    assert not await watch.look()
    assert "403" in watch.record.notes[NOTE]
    assert watch.record.container is reading
    kubernetes.forbidden = False
    assert await watch.look()
    assert NOTE not in watch.record.notes
