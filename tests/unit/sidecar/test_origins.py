"""How each backend is reached for telemetry."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.origins import Origins
from tokenweir.config import ConfigError
from tokenweir.config.models import BackendConfig


def backend(url: str, **config: object) -> BackendConfig:
    return BackendConfig.model_validate({"id": "a", "url": url, **config})


@pytest.fixture
def origins(tmp_path: Path) -> Origins:
    return Origins(tmp_path)


def test_it_is_reached_by_its_address_and_told_its_name(origins: Origins) -> None:
    origin = origins.of(backend("http://gpu-a:8000"), "10.0.0.1", None)
    assert (origin.base, origin.host_header) == ("http://10.0.0.1:8000", "gpu-a:8000")
    assert (origin.tls, origin.server_name, origin.api_key) == (None, None, None)
    assert origins.of(backend("http://gpu-a:8000"), "fd00::1", None).base == "http://[fd00::1]:8000"


def test_a_secure_one_has_its_name_in_the_handshake_and_backends_share_a_context(origins: Origins) -> None:
    first = origins.of(backend("https://gpu.example"), "10.0.0.1", "sk")
    other = origins.of(
        BackendConfig(id="b", url="https://b.example"),  # type: ignore[call-arg]
        "10.0.0.2",
        None,
    )
    assert (first.base, first.server_name, first.api_key) == ("https://10.0.0.1:443", "gpu.example", "sk")
    assert first.tls is not None
    assert first.tls is other.tls


def test_it_is_made_anew_where_its_address_its_key_or_its_configuration_changed(origins: Origins) -> None:
    config = backend("http://gpu-a:8000")
    first = origins.of(config, "10.0.0.1", None)
    assert origins.of(config, "10.0.0.1", None) is first
    assert origins.of(config, "10.0.0.2", None) is not first
    assert origins.of(config, "10.0.0.2", "sk").api_key == "sk"


def test_files_that_were_read_anew_and_backends_that_left_are_forgotten(origins: Origins) -> None:
    config = backend("http://gpu-a:8000")
    first = origins.of(config, "10.0.0.1", None)
    origins.keep({"a"})
    assert origins.of(config, "10.0.0.1", None) is first
    origins.keep(set())
    second = origins.of(config, "10.0.0.1", None)
    assert second is not first
    origins.forget()
    assert origins.of(config, "10.0.0.1", None) is not second


def test_an_authority_that_cannot_be_read_is_named_with_its_key(origins: Origins) -> None:
    config = backend("https://gpu.example", tls={"ca": "missing.pem"})
    with pytest.raises(ConfigError, match=r"`backends: a: tls\.ca`"):
        origins.of(config, "10.0.0.1", None)
