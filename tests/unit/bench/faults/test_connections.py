"""Which process holds which connection."""

from __future__ import annotations

import os
import socket

from bench.faults.connections import client_ports, parse_tcp

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 777 1
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 778 1
"""


def test_the_peer_of_the_own_port_is_read_from_the_table():
    assert parse_tcp(TABLE, 8080) == {"777": 50_000}
    assert parse_tcp(TABLE, 9) == {}


def test_a_process_holds_the_connections_that_it_accepted():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as mine, listener.accept()[0]:
            assert client_ports(os.getpid(), port) == {mine.getsockname()[1]}
