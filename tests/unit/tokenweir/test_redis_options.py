"""How the sidecar's user reaches Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenweir.config import ConfigError
from tokenweir.config.models import Redis
from tokenweir.redis_options import redis_options


def test_a_plain_redis_needs_nothing_but_its_place_and_no_call_takes_longer_than_the_bound(
    tmp_path: Path,
) -> None:
    options = redis_options(Redis(host="r.example", port=7000, db=2), tmp_path, 1.5)
    assert (options["host"], options["port"], options["db"]) == ("r.example", 7000, 2)
    assert options["socket_timeout"] == options["socket_connect_timeout"] == 1.5
    assert not {"password", "ssl"} & options.keys()


def test_user_password_and_authority_come_from_the_configuration_and_its_folder(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("secret\n")
    config = Redis(sidecar_user="sidecar", sidecar_password_file="pw", tls=True, ca="ca.pem")
    options = redis_options(config, tmp_path, 1)
    assert (options["username"], options["password"]) == ("sidecar", "secret")
    assert (options["ssl"], options["ssl_ca_certs"]) == (True, str(tmp_path / "ca.pem"))


def test_a_password_file_that_is_not_there_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sidecar_password_file"):
        redis_options(Redis(sidecar_password_file="none"), tmp_path, 1)
