"""CPU time from /proc."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.servers import cpu


def test_a_command_with_blanks_and_brackets_does_not_shift_the_fields():
    rest = "S 7 " + " ".join(str(number) for number in range(5, 53))
    stat = cpu.parse_stat(f"42 (a (b) c) {rest}")
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert (stat.pid, stat.parent) == (42, 7)
    assert stat.cpu_s == (14 + 15 + 16 + 17) * tick
    assert stat.resident == 24 * os.sysconf("SC_PAGE_SIZE")


def test_the_tree_of_a_process_has_its_children():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in [stat.pid for stat in cpu.tree(os.getpid())]
        assert cpu.resident_bytes(child.pid) > 0
    finally:
        child.communicate(b"\n")
    assert cpu.tree(child.pid) == []
