"""Free ports and the holders of taken ones."""

from __future__ import annotations

import os
import socket

from tokenweir.stack import ports


def test_a_port_with_a_listener_is_not_free_and_its_holder_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free("127.0.0.1", port)
        assert ports.holders(port) == {os.getpid()}
        assert f"process {os.getpid()} (" in ports.describe_holder(port)
    assert ports.is_free("127.0.0.1", port)


def test_a_listener_on_all_addresses_takes_the_loopback_port_too() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert not ports.is_free("127.0.0.1", server.getsockname()[1])


def test_a_holder_that_cannot_be_seen_is_said_to_be_another_users() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert "another process" in ports.describe_holder(free)
