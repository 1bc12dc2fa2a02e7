"""`tokenweir/config/own_address.py`."""

from __future__ import annotations

import pytest

from tokenweir.config.errors import ConfigError
from tokenweir.config.loading import parse
from tokenweir.config.own_address import is_own
from tokenweir.config.servers import Listen


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("http://localhost:8080", "127.0.0.1"),
        ("http://127.0.0.2:8080", "0.0.0.0"),
        ("http://[::1]:8080", "::"),
        ("http://10.0.0.5:8080", "10.0.0.5"),
        ("https://0.0.0.0:8080", "127.0.0.1"),
    ],
)
def test_the_gateway_s_address_is_known_however_it_is_written(url: str, address: str) -> None:
    assert is_own(url, Listen(address=address, port=8080))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1"),
        ("http://10.0.0.6:8080", "10.0.0.5"),
        ("http://10.0.0.6:8080", "0.0.0.0"),
        ("http://127.0.0.1:8080", "10.0.0.5"),
        ("http://vllm:8080", "0.0.0.0"),
        ("http://127.0.0.1", "127.0.0.1"),
    ],
)
def test_another_address_is_not(url: str, address: str) -> None:
    assert not is_own(url, Listen(address=address, port=8080))


def test_the_port_of_the_scheme_counts_where_none_is_written() -> None:
    assert is_own("http://127.0.0.1", Listen(port=80))
    assert is_own("https://127.0.0.1", Listen(port=443))


def test_such_a_backend_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError) as told:
        parse("backends: ['http://10.0.0.1:8080', 'http://localhost:8080']", "tokenweir.yaml")
    assert "`backends[1].url`: it is the gateway's own address" in str(told.value)
    assert "backends[0]" not in str(told.value)
