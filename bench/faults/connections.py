"""Which process holds which TCP connection, from /proc."""

from __future__ import annotations

import os
from pathlib import Path


def _inodes(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def parse_tcp(text: str, port: int) -> dict[str, int]:
    """Return inode -> the peer's port of the connections whose own port is `port` in a /proc/net/tcp text."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        own, peer = fields[1], fields[2]
        if int(own.rpartition(":")[2], 16) == port:
            found[fields[9]] = int(peer.rpartition(":")[2], 16)
    return found


def client_ports(pid: int, port: int) -> frozenset[int]:
    """Return the ports of the clients whose connections to `port` the process `pid` holds."""
    peers = parse_tcp(Path(f"/proc/{os.getpid()}/net/tcp").read_text(), port)
    return frozenset(peers[inode] for inode in _inodes(pid) if peers.get(inode))
