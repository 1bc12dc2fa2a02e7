"""Whether a TCP port is free, and who has it if not."""

from __future__ import annotations

import socket
from pathlib import Path

LISTENING = "0A"


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now; connections that only linger do not count."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(fields[9])
    return inodes


def holders(port: int) -> set[int]:
    """Pids of the processes that listen on the port, as far as this user may see."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not inodes:
        return set()
    pids = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            for descriptor in (process / "fd").iterdir():
                if str(descriptor.readlink()) in inodes:
                    pids.add(int(process.name))
                    break
        except OSError:
            continue
    return pids


def describe_holder(port: int) -> str:
    """`process 1234 (nginx: master process nginx)`, or what can be said of it."""
    pids = sorted(holders(port))
    if not pids:
        return "another process (of another user: `sudo ss -ltnp` names it)"
    try:
        command = Path(f"/proc/{pids[0]}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = ""
    return f"process {pids[0]} ({command.strip()[:120] or 'unknown command'})"
