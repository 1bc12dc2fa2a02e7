"""Bringing processes up and down: only what was started is ever stopped, and again is safe."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ports import free_port
from tokenweir.stack import launch
from tokenweir.stack.errors import StackError
from tokenweir.stack.identity import Identity, identify
from tokenweir.stack.part import Part, Port
from tokenweir.stack.process import PidFile, read_pid_files

SERVER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""


def connects(port: int) -> str | None:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError as error:
        return str(error)
    return None


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "run"
    folder.mkdir()
    yield folder
    launch.take_down(folder, lambda *_: None)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Part]:
    def part(name: str, code: str = SERVER, **changes: object) -> Part:
        port = free_port()
        made = Part(
            name=name,
            title=name,
            argv=[sys.executable, "-c", code, str(port)],
            environment=os.environ,
            folder=tmp_path,
            log=tmp_path / f"{name}.log",
            ports=[Port("127.0.0.1", port, f"{name}.port")],
            ready=lambda: connects(port),
            grace_s=2,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    return part


def told() -> tuple[list[tuple[str, str]], launch.Report]:
    said: list[tuple[str, str]] = []
    return said, lambda name, what, _: said.append((name, what))


def pids(run: Path) -> dict[str, int]:
    return {name: pid_file.identity.pid for name, pid_file in read_pid_files(run).items()}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 30
    while identify(pid) and time.monotonic() < until:
        time.sleep(0.01)


def test_up_waits_until_each_part_is_ready(run: Path, make: Callable[..., Part]) -> None:
    parts = [make("one"), make("two")]
    launch.bring_up(parts, run, lambda *_: None)
    assert all(connects(part.ports[0].number) is None for part in parts)


def test_up_again_leaves_running_parts_alone(run: Path, make: Callable[..., Part]) -> None:
    parts = [make("one"), make("two")]
    launch.bring_up(parts, run, lambda *_: None)
    before = pids(run)
    said, report = told()
    launch.bring_up(parts, run, report)
    assert pids(run) == before
    assert said == [("one", "running"), ("two", "running")]


def test_up_again_starts_the_part_that_has_died(run: Path, make: Callable[..., Part]) -> None:
    parts = [make("one"), make("two")]
    launch.bring_up(parts, run, lambda *_: None)
    before = pids(run)
    kill(before["one"])
    launch.bring_up(parts, run, lambda *_: None)
    assert pids(run)["one"] != before["one"]
    assert pids(run)["two"] == before["two"]


def test_up_again_restarts_a_part_whose_settings_have_changed(run: Path, make: Callable[..., Part]) -> None:
    part = make("one")
    launch.bring_up([part], run, lambda *_: None)
    before = pids(run)
    launch.bring_up([replace(part, stamp="other")], run, lambda *_: None)
    assert pids(run) != before
    assert part.ready() is None


def test_a_part_that_can_reload_keeps_its_process_when_its_settings_change(
    run: Path, make: Callable[..., Part]
) -> None:
    code = "import signal; signal.signal(signal.SIGHUP, lambda *_: print('reloaded', flush=True))\n" + SERVER
    part = make("one", code, reload_signal=signal.SIGHUP)
    launch.bring_up([part], run, lambda *_: None)
    before = pids(run)
    launch.bring_up([replace(part, stamp="other")], run, lambda *_: None)
    assert pids(run) == before
    until = time.monotonic() + 30
    while "reloaded" not in part.log.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert "reloaded" in part.log.read_text()


def test_up_stops_a_part_that_is_no_longer_wanted(run: Path, make: Callable[..., Part]) -> None:
    one, two = make("one"), make("two")
    launch.bring_up([one, two], run, lambda *_: None)
    launch.bring_up([one], run, lambda *_: None)
    assert list(pids(run)) == ["one"]
    assert two.ready() is not None


def test_a_taken_port_is_named_with_its_holder_and_the_key_that_changes_it(
    run: Path, make: Callable[..., Part]
) -> None:
    part = make("one")
    with socket.create_server(("127.0.0.1", part.ports[0].number)), pytest.raises(StackError) as raised:
        launch.bring_up([part], run, lambda *_: None, "mine2.yaml")
    assert f"port {part.ports[0].number}" in str(raised.value)
    assert "`one.port` in mine2.yaml" in str(raised.value)
    assert f"process {os.getpid()}" in str(raised.value)
    assert "one.port" in str(raised.value)
    assert pids(run) == {}


def test_all_taken_ports_are_named_at_once(run: Path, make: Callable[..., Part]) -> None:
    one, two, three = make("one"), make("two"), make("three")
    with (
        socket.create_server(("127.0.0.1", one.ports[0].number)),
        socket.create_server(("127.0.0.1", three.ports[0].number)),
        pytest.raises(StackError) as raised,
    ):
        launch.bring_up([one, two, three], run, lambda *_: None, "mine2.yaml")
    assert "(one.port)" in str(raised.value)
    assert "(three.port)" in str(raised.value)
    assert "(two.port)" not in str(raised.value)
    assert "set others in mine2.yaml" in str(raised.value)


def test_no_part_is_started_when_the_port_of_a_later_one_is_taken(
    run: Path, make: Callable[..., Part]
) -> None:
    one, two = make("one"), make("two")
    with socket.create_server(("127.0.0.1", two.ports[0].number)), pytest.raises(StackError):
        launch.bring_up([one, two], run, lambda *_: None)
    assert one.ready() is not None


def test_a_part_that_ends_at_once_is_reported_with_the_end_of_its_log(
    run: Path, make: Callable[..., Part]
) -> None:
    with pytest.raises(StackError, match=r"exit status 3(.|\n)*no such engine"):
        launch.bring_up(
            [make("one", "import sys; print('no such engine', flush=True); sys.exit(3)")],
            run,
            lambda *_: None,
        )


def test_only_what_the_failed_start_wrote_is_shown_and_from_all_its_logs(
    run: Path, make: Callable[..., Part], tmp_path: Path
) -> None:
    own = tmp_path / "own.log"
    own.write_text("of yesterday\n")
    code = f"open({str(own)!r}, 'a').write('cannot bind'); raise SystemExit(1)"
    with pytest.raises(StackError) as raised:
        launch.bring_up([make("one", code, other_logs=(own,))], run, lambda *_: None)
    assert "cannot bind" in str(raised.value)
    assert "of yesterday" not in str(raised.value)


def test_a_part_that_is_never_ready_is_reported_with_what_is_awaited(
    run: Path, make: Callable[..., Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "READY_WITHIN_S", 0.3)
    with pytest.raises(StackError, match="the model loads"):
        launch.bring_up([make("one", ready=lambda: "the model loads")], run, lambda *_: None)


def test_down_after_a_failed_up_stops_what_had_been_started(run: Path, make: Callable[..., Part]) -> None:
    one = make("one")
    with pytest.raises(StackError):
        launch.bring_up(
            [one, make("two", "raise SystemExit(3)", needs=frozenset({"one"}))], run, lambda *_: None
        )
    assert one.ready() is None
    launch.take_down(run, lambda *_: None)
    assert one.ready() is not None
    assert pids(run) == {}


def test_up_leaves_alone_what_another_configuration_runs_from_this_folder(
    run: Path, make: Callable[..., Part], tmp_path: Path
) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    launch.claim(run, one)
    launch.bring_up([make("a")], run, lambda *_: None)
    launch.claim(run, one)
    with pytest.raises(StackError, match=r"was started for .*one\.yaml: give .*other\.yaml a `state_dir`"):
        launch.claim(run, other)
    launch.take_down(run, lambda *_: None)
    launch.claim(run, other)


def test_down_stops_the_last_started_first(run: Path, make: Callable[..., Part]) -> None:
    launch.bring_up([make("one"), make("two")], run, lambda *_: None)
    said, report = told()
    launch.take_down(run, report)
    assert [name for name, what in said if what == "stopped"] == ["two", "one"]


def test_down_leaves_a_process_alone_that_got_the_pid_of_a_dead_part(run: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        identity = identify(stranger.pid)
        assert identity is not None
        older = Identity(identity.pid, identity.start - 1, identity.boot)
        PidFile("one", 0, older, "", int(signal.SIGTERM), 1).write(run)
        launch.take_down(run, lambda *_: None)
        assert stranger.poll() is None
        stranger.kill()


def test_down_leaves_a_process_of_another_boot_alone(run: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        identity = identify(stranger.pid)
        assert identity is not None
        PidFile("one", 0, replace(identity, boot="another"), "", int(signal.SIGTERM), 1).write(run)
        launch.take_down(run, lambda *_: None)
        assert stranger.poll() is None
        stranger.kill()


def test_down_ends_children_that_a_killed_part_left_behind(run: Path, make: Callable[..., Part]) -> None:
    code = f"import os, time\nif os.fork():\n    time.sleep(60)\n{SERVER}"
    part = make("one", code)
    launch.bring_up([part], run, lambda *_: None)
    kill(pids(run)["one"])
    assert part.ready() is None
    launch.take_down(run, lambda *_: None)
    assert part.ready() is not None


def test_down_ends_a_part_that_ignores_its_stop_signal(run: Path, make: Callable[..., Part]) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER
    part = make("one", code, grace_s=0.2)
    launch.bring_up([part], run, lambda *_: None)
    launch.take_down(run, lambda *_: None)
    assert part.ready() is not None


def test_a_damaged_pid_file_is_passed_over(run: Path) -> None:
    (run / "one.json").write_text('{"name": "one"')
    assert read_pid_files(run) == {}


def test_a_second_up_at_the_same_time_is_refused(run: Path) -> None:
    with launch.exclusively(run), pytest.raises(StackError, match="another"), launch.exclusively(run):
        pass
