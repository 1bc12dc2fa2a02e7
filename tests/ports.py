"""Free TCP ports that stay free until a server takes them."""

from __future__ import annotations

import socket
from collections import deque

HELD = 256
"""How many of the last ports are kept: more than one test uses."""

_held: deque[socket.socket] = deque()


def free_port() -> int:
    """A TCP port of loopback that nobody else is given, neither by this function nor by the kernel.

    It stays bound here, by a socket that does not listen. A server that sets SO_REUSEADDR or SO_REUSEPORT, as
    all that are tested do, can listen there all the same, and again after it was stopped.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    if len(_held) > HELD:
        _held.popleft().close()
    port: int = holder.getsockname()[1]
    return port
