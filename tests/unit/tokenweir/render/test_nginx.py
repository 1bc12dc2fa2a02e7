"""nginx.conf says what tokenweir.yaml says, and no string of it can become a directive."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tokenweir.config.loading import parse
from tokenweir.config.models import Config
from tokenweir.render import Paths, RenderError, render, write
from tokenweir.render.nginx import dynamic_modules, listen_address, name_servers, quoted
from tokenweir.render.nginx_program import nginx_version, version_in


def config(**members: Any) -> Config:
    return parse(json.dumps({"backends": ["http://10.0.0.11:8000"], **members}), "test", {})


def paths(folder: Path, user: str | None = None) -> Paths:
    return Paths(prefix=folder, lua=folder / "lua", user=user)


def directive(text: str, name: str) -> str:
    match = re.search(rf"^\s*{name} (.*?);", text, re.MULTILINE)
    assert match, f"{name} is not there"
    return match[1]


def test_limits_become_directives(tmp_path: Path) -> None:
    text = render(
        config(limits={"body_max": "8MiB", "body_memory": "1MiB", "idle": "5m", "drain": "20s", "tries": 2}),
        paths(tmp_path),
    )
    assert directive(text, "client_max_body_size") == str(8 * 1024**2)
    assert directive(text, "client_body_buffer_size") == str(1024**2)
    assert directive(text, "proxy_read_timeout") == "300000ms"
    assert directive(text, "worker_shutdown_timeout") == "20000ms"
    assert directive(text, "proxy_next_upstream_tries") == "2"


def test_there_is_room_for_the_use_of_every_key(tmp_path: Path) -> None:
    def size(keys: int) -> int:
        listed = [{"id": f"k{k}", "sha256": f"{k:064x}"} for k in range(keys)]
        text = render(config(keys=listed), paths(tmp_path))
        return int(directive(text, "lua_shared_dict tokenweir_limits").removesuffix("m"))

    assert size(0) == 8
    assert size(5000) * 2**20 >= 5000 * 2 * 4 * 128


def test_workers_run_as_another_user_only_under_root(tmp_path: Path) -> None:
    assert directive(render(config(), paths(tmp_path, "www-data")), "user") == "www-data"
    assert "\nuser " not in render(config(), paths(tmp_path))


def test_no_module_is_loaded_where_lua_is_built_in(tmp_path: Path) -> None:
    assert dynamic_modules([tmp_path]) == []
    assert "load_module" not in render(config(), paths(tmp_path), modules=[])


def test_debian_s_modules_are_loaded_in_their_order(tmp_path: Path) -> None:
    for name in ("ngx_http_lua_module.so", "ndk_http_module.so"):
        (tmp_path / name).touch()
    assert [path.name for path in dynamic_modules([tmp_path])] == [
        "ndk_http_module.so",
        "ngx_http_lua_module.so",
    ]


@pytest.mark.parametrize(
    ("address", "port", "rendered"),
    [
        ("0.0.0.0", 80, "0.0.0.0:80"),
        ("::", 8080, "[::]:8080"),
        ("[::1]", 8080, "[::1]:8080"),
        ("gateway.example", 8080, "gateway.example:8080"),
    ],
)
def test_listen_addresses(address: str, port: int, rendered: str) -> None:
    assert listen_address(address, port) == rendered


def test_all_of_ipv6_is_all_of_ipv4_too(tmp_path: Path) -> None:
    text = render(config(listen={"address": "::", "port": 8080}), paths(tmp_path))
    assert "        listen [::]:8080 backlog" in text
    assert "        listen 0.0.0.0:8080 backlog" in text
    assert "[::]" not in render(config(listen={"address": "0.0.0.0"}), paths(tmp_path))


@pytest.mark.parametrize("address", ["a b", "1.2.3.4; daemon on", "-x", "unix:/tmp/x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(RenderError, match="neither an IP address"):
        listen_address(address, 80)


def test_quotes_and_backslashes_stay_inside_their_string() -> None:
    assert quoted('/a"; daemon on; "b\\') == '"/a\\"; daemon on; \\"b\\\\"'


@pytest.mark.parametrize("text", ["a\nb", "a\x00b", "a$b", "a\x7fb"])
def test_what_nginx_s_strings_cannot_carry_is_refused(text: str) -> None:
    with pytest.raises(RenderError):
        quoted(text)


def test_a_path_with_quotes_and_braces_is_no_directive(tmp_path: Path) -> None:
    hostile = tmp_path / 'a"; } daemon on; {'
    hostile.mkdir()
    text = render(config(), paths(hostile))
    assert not re.search(r"^\s*}? *daemon on", text, re.MULTILINE)


def test_only_trusted_proxies_are_believed(tmp_path: Path) -> None:
    assert "real_ip" not in render(config(), paths(tmp_path))
    text = render(config(listen={"trusted_proxies": ["10.1.2.3/16", "fd00::1"]}), paths(tmp_path))
    assert "set_real_ip_from 10.1.0.0/16;" in text
    assert "set_real_ip_from fd00::1/128;" in text
    assert "real_ip_header X-Forwarded-For;" in text


def test_browsers_are_told_nothing_unless_it_is_wanted(tmp_path: Path) -> None:
    text = render(config(), paths(tmp_path))
    assert "cors" not in text
    assert "Access-Control" not in text
    assert "if (" not in text


def test_origins_become_entries_of_a_map(tmp_path: Path) -> None:
    origins = ["https://chat.example", "http://localhost:3000"]
    text = render(config(listen={"cors_origins": origins}), paths(tmp_path))
    assert '"https://chat.example" $http_origin;' in text
    assert '"http://localhost:3000" $http_origin;' in text
    assert '"~."' not in text


def test_the_metrics_listen_on_loopback_beside_the_gateway(tmp_path: Path) -> None:
    text = render(config(listen={"address": "0.0.0.0", "port": 8080}), paths(tmp_path))
    assert "listen 127.0.0.1:9080;" in text


def test_a_metrics_port_beyond_the_last_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="metrics_port"):
        render(config(listen={"port": 65000}), paths(tmp_path))


def test_redis_by_name_needs_a_resolver_and_by_address_none(tmp_path: Path) -> None:
    assert "resolver" not in render(config(redis={"host": "10.0.0.5"}), paths(tmp_path))
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("search x\nnameserver 127.0.0.11\nnameserver fe80::1%eth0\n")
    assert name_servers(resolv_conf) == ["127.0.0.11", "[fe80::1]"]


def test_every_directive_of_the_template_is_known_to_nginx(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert nginx, "apt install nginx libnginx-mod-http-lua"
    where = Paths.under(tmp_path, "root" if os.geteuid() == 0 else None)
    conf = write(config(), where, tmp_path)
    checked = subprocess.run(
        [nginx, "-t", "-p", str(where.prefix), "-c", str(conf), "-e", "stderr"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


TLS = {"listen": {"tls": {"certificate": "c.pem", "key": "k.pem"}}}


@pytest.mark.parametrize(
    ("told", "word", "directive_"),
    [
        ("nginx version: nginx/1.22.1\n", True, False),
        ("nginx version: nginx/1.26.3 (Debian)\n", False, True),
        ("nginx version: openresty/1.25.3.1\n", False, True),
        ("something else", True, False),
    ],
)
def test_http_2_is_offered_in_the_words_of_the_nginx_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, word: bool, directive_: bool
) -> None:
    monkeypatch.setattr("tokenweir.render.nginx.nginx_version", lambda: version_in(told))
    text = render(config(**TLS), paths(tmp_path))
    assert (" ssl http2 " in text) is word
    assert ("http2 on;" in text) is directive_


@pytest.mark.parametrize(
    ("told", "sends"),
    [
        ("nginx version: nginx/1.22.1\n", False),
        ("nginx version: nginx/1.26.3 (Debian)\n", False),
        ("nginx version: nginx/1.29.0\n", True),
        ("nginx version: openresty/1.29.2.1\n", True),
        ("something else", False),
    ],
)
def test_early_hints_go_out_on_http_2_where_this_nginx_sends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, sends: bool
) -> None:
    monkeypatch.setattr("tokenweir.render.nginx.nginx_version", lambda: version_in(told))
    assert ("early_hints $tw_hint;" in render(config(**TLS), paths(tmp_path))) is sends
    assert "early_hints $" not in render(config(), paths(tmp_path)), "on HTTP/1.1 no directive is needed"


def test_http_2_is_offered_with_tls_only_and_can_be_turned_off(tmp_path: Path) -> None:
    off = {"listen": {"tls": {**TLS["listen"]["tls"], "http2": False}}}
    assert "http2" not in render(config(), paths(tmp_path))
    assert "http2" not in render(config(**off), paths(tmp_path))


def test_the_version_of_this_machine_s_nginx_is_known() -> None:
    found = nginx_version()
    assert found is not None and found >= (1, 18, 0)
