"""Files that backends name: a bad one is its backend's problem, and the admin API may not name just any."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.backend_files import BackendFiles
from tokenweir.config import ConfigError
from tokenweir.config.models import BackendConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    for name in ("secrets/a", "elsewhere"):
        (tmp_path / name).write_text(f"key-of-{Path(name).name}\n")
    return tmp_path


def files(folder: Path) -> BackendFiles:
    return BackendFiles(folder, folder / "secrets", folder / "ca.pem")


def backend(name: str, **members: object) -> BackendConfig:
    return BackendConfig.model_validate({"id": name, "url": f"http://{name}:8000", **members})


def test_keys_are_known_by_the_name_of_their_file(folder):
    written = [backend("a", api_key_file="elsewhere"), backend("b", api_key_file="elsewhere"), backend("c")]
    found = files(folder).read(written, written)
    assert (found.keys, found.problems) == ({"elsewhere": "key-of-elsewhere"}, {})


def test_a_file_that_cannot_be_read_is_the_problem_of_its_backend_alone(folder):
    written = [backend("a", api_key_file="nowhere"), backend("b", api_key_file="secrets/a")]
    found = files(folder).read(written, written)
    assert found.keys == {"secrets/a": "key-of-a"}
    assert list(found.problems) == ["a"]
    assert "No such file" in found.problems["a"]


def test_the_admin_api_may_name_files_below_one_folder(folder):
    assert files(folder).check(backend("a", api_key_file="secrets/a"), None) == "key-of-a"


@pytest.mark.parametrize("name", ["elsewhere", "secrets/../elsewhere", "/etc/hostname", "secrets/link"])
def test_the_admin_api_cannot_have_another_file_read_and_sent(folder, name):
    (folder / "secrets/link").symlink_to(folder / "elsewhere")
    with pytest.raises(ConfigError, match=r"admin\.files_dir"):
        files(folder).check(backend("a", api_key_file=name), None)
    assert files(folder).read([backend("a", api_key_file=name)], []).keys == {}


def test_what_tokenweir_yaml_names_may_be_kept_by_a_change_of_the_admin_api(folder):
    written = backend("a", api_key_file="elsewhere")
    changed = backend("a", api_key_file="elsewhere", weight=2)
    assert files(folder).check(changed, written) == "key-of-elsewhere"


@pytest.mark.parametrize(
    "change", [{"url": "http://evil.example"}, {"tls": {"verify": False}}, {"api_key_file": "/etc/hostname"}]
)
def test_a_key_of_tokenweir_yaml_is_not_sent_elsewhere_by_the_admin_api(folder, change):
    written = backend("a", api_key_file="elsewhere")
    with pytest.raises(ConfigError, match=r"admin\.files_dir"):
        files(folder).check(backend("a", **{"api_key_file": "elsewhere", **change}), written)


def test_an_authority_that_nginx_has_not_read_is_told(folder):
    (folder / "own.pem").write_text("-----OWN-----\n")
    (folder / "ca.pem").write_text("-----SYSTEM-----\n")
    written = backend("a", url="https://a", tls={"ca": "own.pem"})
    with pytest.raises(ConfigError, match="make up"):
        files(folder).check(written, written)
    (folder / "ca.pem").write_text("-----SYSTEM-----\n-----OWN-----\n")
    assert files(folder).check(written, written) is None


def test_without_a_gateway_on_this_host_nobody_knows_what_nginx_has_read(folder):
    (folder / "own.pem").write_text("-----OWN-----\n")
    written = backend("a", url="https://a", tls={"ca": "own.pem"})
    assert files(folder).check(written, written) is None


def test_a_file_that_comes_changes_or_goes_is_noticed(folder):
    read = files(folder)
    written = [backend("a", api_key_file="secrets/new")]
    read.read(written, written)
    assert not read.changed()
    for step in (
        lambda: (folder / "secrets/new").write_text("one"),
        lambda: (folder / "secrets/new").write_text("other"),
        (folder / "secrets/new").unlink,
    ):
        step()
        assert read.changed()
        read.read(written, written)
        assert not read.changed()
