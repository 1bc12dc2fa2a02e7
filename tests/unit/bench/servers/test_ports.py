"""Ports for the servers of the benches."""

from __future__ import annotations

import socket

import pytest

from bench.servers import ports


def reusing(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock


def test_a_kept_port_can_be_listened_on_again_and_again() -> None:
    with ports.keep_port() as kept:
        port = kept.getsockname()[1]
        for _ in range(2):
            with reusing(port) as server:
                server.listen()
                assert ports.listening(port)
        assert not ports.listening(port)


def test_a_kept_port_is_not_given_to_who_does_not_share_it() -> None:
    with ports.keep_port() as kept, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(kept.getsockname())
