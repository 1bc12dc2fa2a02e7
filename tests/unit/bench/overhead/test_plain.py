"""Plain nginx is compared on equal terms: what makes a stream flow is set as in the gateway."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.overhead import plain

EQUAL = (
    "proxy_http_version",
    "proxy_buffering",
    "proxy_request_buffering",
    "proxy_max_temp_file_size",
    "proxy_buffer_size",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_connect_timeout",
    "proxy_send_timeout",
    "proxy_socket_keepalive",
    "keepalive",
    "keepalive_timeout",
    "keepalive_requests",
    "tcp_nodelay",
    "gzip",
)


def values(configuration: str, name: str) -> set[str]:
    return set(re.findall(rf"^\s*{name}\s+([^;{{]+);", configuration, re.MULTILINE))


@pytest.mark.parametrize("name", EQUAL)
def test_a_directive_has_the_gateway_s_value(root: Path, name: str):
    gateway = values((root / "nginx" / "nginx.conf.j2").read_text(), name)
    assert gateway
    assert values(plain.CONFIGURATION, name) == gateway


def test_both_write_a_buffered_access_log(root: Path):
    gateway = (root / "nginx" / "nginx.conf.j2").read_text()
    for configuration in (gateway, plain.CONFIGURATION):
        assert re.search(r"access_log \S+ \S+ buffer=64k flush=1s;", configuration)
