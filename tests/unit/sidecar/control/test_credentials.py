"""Which backends a retry may go between."""

from __future__ import annotations

from sidecar.control import credentials
from tokenweir.config.models import BackendConfig


def groups(*configs):
    return credentials.groups({config.id: config for config in configs})


def backend(name, url=None, **members):
    return BackendConfig(id=name, url=url or f"http://{name}:8000", **members)


def test_plain_backends_without_keys_form_one_group():
    assert groups(backend("a"), backend("b")) == {"a": "", "b": ""}


def test_backends_with_the_same_key_file_share_a_group_and_others_do_not():
    found = groups(*(backend(n, api_key_file=f) for n, f in (("a", "k1"), ("b", "k1"), ("c", "k2"))))
    assert found == {"a": "a", "b": "a", "c": "c"}


def test_tls_and_host_separate():
    found = groups(
        backend("a", "https://x.example"),
        backend("b", "https://y.example"),
        backend("c", host_header="z"),
        backend("d"),
    )
    assert len(set(found.values())) == 4


def test_host_and_server_name_come_from_the_url_unless_configured():
    secure = backend("a", "https://x.example:8443")
    assert (credentials.host_header(secure), credentials.server_name(secure)) == (
        "x.example:8443",
        "x.example",
    )
    assert credentials.host_header(backend("a", host_header="h")) == "h"
    assert credentials.server_name(backend("a")) == ""
