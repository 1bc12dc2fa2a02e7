"""Free TCP ports of the loopback interface."""

from __future__ import annotations

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that nothing listens on, chosen by the kernel."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def keep_port() -> socket.socket:
    """Return a socket that keeps a port from being given to others while it is open. A server that sets
    SO_REUSEADDR, as nearly all do, can listen there all the same, again and again."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock


def listening(port: int) -> bool:
    """Return whether something accepts connections on this port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True
