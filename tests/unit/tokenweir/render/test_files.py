"""The gateway's folder: what is in it, who may read it, where it is."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tokenweir import backend_keys
from tokenweir.config.loading import parse
from tokenweir.config.models import Config
from tokenweir.render import Paths, RenderError, write
from tokenweir.render.paths import reachable


def config(**members: Any) -> Config:
    return parse(json.dumps(members), "test", {})


def test_the_backends_keys_are_left_to_the_sidecar_in_a_folder_that_is_closed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-engine\n")
    paths = Paths(prefix=tmp_path / "gateway", lua=tmp_path)
    write(
        config(backends=[{"url": "http://10.0.0.1:8000", "id": "a", "api_key_file": "key"}]), paths, tmp_path
    )
    assert stat.S_IMODE(paths.backend_keys.parent.stat().st_mode) == 0o700
    assert all("sk-engine" not in path.read_text() for path in paths.prefix.rglob("*") if path.is_file())
    backend_keys.write(paths.backend_keys, {"key": "sk-engine"})
    write(config(), paths, tmp_path)
    assert "sk-engine" in paths.backend_keys.read_text()


def test_a_missing_file_is_named_with_its_key(tmp_path: Path) -> None:
    paths = Paths(prefix=tmp_path / "gateway", lua=tmp_path)
    with pytest.raises(RenderError, match=r"redis\.gateway_password_file.*No such file"):
        write(config(redis={"gateway_password_file": "none"}), paths, tmp_path)


def test_a_gateway_keeps_the_id_of_its_first_start(tmp_path: Path) -> None:
    paths = Paths(prefix=tmp_path / "gateway", lua=tmp_path)
    ids = []
    for _ in range(2):
        write(config(), paths, tmp_path)
        ids.append(json.loads((paths.prefix / "gateway.json").read_text())["gateway_id"])
    assert ids[0] == ids[1]


def test_the_ca_of_a_backend_joins_the_system_s(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_text("-----OWN-----")
    paths = Paths(prefix=tmp_path / "gateway", lua=tmp_path)
    write(config(backends=[{"url": "https://gpu-a", "tls": {"ca": "own.pem"}}]), paths, tmp_path)
    bundle = (paths.prefix / "ca.pem").read_text()
    assert "BEGIN CERTIFICATE" in bundle
    assert bundle.endswith("-----OWN-----")


def test_a_folder_behind_a_closed_one_is_not_reachable(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o700)
    assert not reachable(closed / "inner")
    assert reachable(Path("/usr/lib"))
