"""`tokenweir/config`: what a user may write, and what the errors say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tokenweir.config import ConfigError, load
from tokenweir.config.loading import parse
from tokenweir.config.schema import render
from tokenweir.contract.records import Policy

HASH = "a" * 64


def test_three_addresses_are_enough() -> None:
    config = parse(
        "backends:\n- http://10.0.0.1:8000\n- http://10.0.0.2:8000\n- https://gpu.example\n", "t.yaml"
    )
    assert [backend.id for backend in config.backends] == [
        "10.0.0.1-8000",
        "10.0.0.2-8000",
        "gpu.example-443",
    ]
    assert config.backends[2].secure
    assert config.policy == "predictive"


def test_models_may_be_a_list_or_a_map_to_the_engines_names() -> None:
    text = "backends: [{url: http://a, models: [m]}, {url: http://b, models: {m: org/m}}, {url: http://c, models: m}]"  # noqa: E501
    config = parse(text, "t.yaml")
    assert [backend.models for backend in config.backends] == [{"m": "m"}, {"m": "org/m"}, {"m": "m"}]


@pytest.mark.parametrize(
    "members",
    [
        {"models": {"m": "a\nb"}},
        {"models": ["m\0"]},
        {"precision": "fp8\n"},
        {"host_header": "a\r\nX-Evil: b"},
        {"tls": {"server_name": "a\x7f"}},
        {"api_key_file": "a\tb"},
    ],
)
def test_what_no_gateway_would_take_is_refused_by_its_key(members: dict[str, object]) -> None:
    text = json.dumps({"backends": [{"url": "http://a", **members}]})
    with pytest.raises(ConfigError) as refusal:
        parse(text, "t.yaml")
    problem = refusal.value.problems[0]
    assert next(iter(members)) in problem
    assert "control characters cannot stand in it" in problem


def test_sizes_and_times_are_written_as_people_write_them() -> None:
    config = parse(
        "limits: {body_max: 1MiB, body_memory: 512k, idle: 10m, deadline: 1.5s}\nqueue: {max_wait: 20}", "t"
    )
    limits = config.limits
    assert (limits.body_max, limits.body_memory, limits.idle, limits.deadline) == (
        2**20,
        2**19,
        600_000,
        1500,
    )
    assert config.queue.max_wait == 20_000


def test_bodies_in_memory_are_no_larger_than_the_largest_unless_that_is_written() -> None:
    limits = parse("limits: {body_max: 1MiB}", "t").limits
    assert (limits.body_max, limits.body_memory) == (1024**2, 1024**2)


def test_shadow_serves_by_one_policy_and_logs_another() -> None:
    config = parse("policy: shadow:predictive\nserve_by: least_conn", "t")
    assert (config.served_policy, config.shadow_policy) == (Policy.LEAST_CONN, Policy.PREDICTIVE)


def test_the_environment_overrides_the_file_at_any_depth() -> None:
    config = parse(
        "listen: {port: 8080}", "t", {"TOKENWEIR_LISTEN__PORT": "9000", "TOKENWEIR_POLICY": "round_robin"}
    )
    assert config.listen.port == 9000
    assert config.served_policy is Policy.ROUND_ROBIN


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("backend: [http://a]", ["`backend` is not a key", "did you mean `backends`"]),
        ("backends: [{url: 'http://a', gpuss: 2}]", ["`backends[0].gpuss` is not", "did you mean `gpus`?"]),
        ("backends: [{ulr: 'http://a'}]", ["`backends[0].ulr` is not a key", "did you mean `url`?"]),
        ("backends: [{url: 'http://a', tls: {verfy: no}}]", ["`backends[0].tls.verfy`", "mean `verify`?"]),
        ("backends: [{url: 'http://a', name: a}]", ["`backends[0].name` is not", "its keys are", " id,"]),
        ("keys: [{id: a, sha: b}]", ["`keys[0].sha` is not a key", "did you mean `sha256`?"]),
        ("keys: [{id: a, key: b}]", ["`keys[0].key` is not a key", "did you mean `key_file`?"]),
        ("keys: [sk-a]", ["`keys[0]`: a section with keys of its own", "keys: [{id: team-a, sha256:"]),
        ("listen: '0.0.0.0:80'", ["`listen`: a section with keys of its own", "listen: {address: 0.0.0.0"]),
        ("listen: {port: http}", ["`listen.port`: a whole number is wanted (got 'http'); for example: port"]),
        ("queue: {early_hints: many}", ["`queue.early_hints`: a whole number is wanted (got 'many')"]),
        ("interval: 2s", ["`interval` is not a key", "did you mean `telemetry.interval`?"]),
        ("listen: {trusted_proxies: [proxy.example]}", ["listen.trusted_proxies", "10.1.0.0/16"]),
        (
            "listen: {cors_origins: [https://a.example/chat]}",
            ["listen.cors_origins", "no path", "for example"],
        ),
        ("listen: {cors_origins: [chat.example]}", ["listen.cors_origins", "'chat.example' is no origin"]),
        ("listen: {cors_origins: ['https://*.example']}", ["listen.cors_origins", "is no origin"]),
        ("listen: {cors_origins: ['https://a$b']}", ["listen.cors_origins", "is no origin"]),
        ("listen: {cors_origins: '*'}", ["listen.cors_origins", "a list is wanted"]),
        ("limits: {body_time: 100ms}", ["limits.body_time"]),
        ("queue: {max_wait: 2h}", ["`queue.max_wait`: must be at most 1h (got '2h')"]),
        ("telemetry: {interval: 10s}", ["`telemetry.interval`: must be at most 5s (got '10s')"]),
        ("limits: {idle: 100ms}", ["`limits.idle`: must be at least 1s (got '100ms')"]),
        ("queue: {max_bytes: 0}", ["`queue.max_bytes`: must be at least 1 (got '0')"]),
        ("paths: {v1/audio: whisper}", ["`paths.v1/audio`: a path below /v1/ is wanted, like /v1/audio/"]),
        (
            "limits: {body_max: 1MiB, body_memory: 2MiB}",
            ["`limits`", "2,097,152", "1,048,576", "leave it out"],
        ),
        ("listen: {workers: many}", ["`listen.workers`: ", "got 'many'"]),
        ("backends: [ftp://a]", ["backends[0].url", "http:// or https://", "for example"]),
        ("backends: [{url: 'http://a:1/v1'}]", ["backends[0].url", "only scheme, host and port"]),
        ("backends: [{url: 'http://a:99999'}]", ["backends[0].url", "not a URL"]),
        ("backends: [{url: 'http://a b:1'}]", ["backends[0].url", "'a b' is no name of a host"]),
        ("backends: [{url: 'http://a..b:1'}]", ["backends[0].url", "no name of a host"]),
        ("backends: [{url: 'http://a', metrics_url: 'http://-a/'}]", ["metrics_url", "no name of a host"]),
        ("backends: [{url: 'http://u:p@a'}]", ["api_key_file"]),
        (
            "backends: [http://a:1, http://a:1]",
            ["`backends[1].id`", "'a-1' is used twice", "`backends[0].id`"],
        ),
        ("backends: [{url: 'http://a', id: x}, {url: 'http://a', id: y}]", ["`backends[1].url`", "http://a"]),
        ("backends: [{url: 'http://a', dcgm_url: 'gpu:9400'}]", ["backends[0].dcgm_url", "9400/metrics"]),
        ("backends: [{url: 'http://a', metrics_url: 'http://a:b/'}]", ["metrics_url", "not a URL"]),
        ("backends: [{url: 'http://a', dcgm_url: 'http://u:p@a/metrics'}]", ["dcgm_url", "password"]),
        ("backends: [https://10.0.0.1]", ["backends[0]", "server_name", "IP address"]),
        ("backends: [{url: 'https://a', tls: {server_name: '::1'}}]", ["server_name", "IP address"]),
        ("paths: {/audio/: whisper}", ["paths", "/v1/"]),
        ("paths: {/v1/: whisper}", ["paths"]),
        ("policy: fastest", ["unknown policy", "round_robin", "predictive"]),
        ("listen: {port: 99999}", ["listen.port", "65535", "99999", "port: 8080"]),
        ("limits: {body_max: lots}", ["limits.body_max", "64MiB"]),
        ("admin: {address: 0.0.0.0}", ["reachable from outside", "token_file"]),
        ("keys: [{id: a}]", ["keys[0]", "sha256", "key_file"]),
        ("models: [{name: m, aliases: [m2]}, m2]", ["used twice", "'m2'", "`models[0].aliases`"]),
        ("models: [{name: m, fallback: m}]", ["`models[0].fallback`", "'m'"]),
        (
            "policy: hybrid\nlog: {}\npolicy: predictive",
            ["line 3, column 1", "`policy`", "in line 1 already"],
        ),
        ("listen: {port: 1, port: 2}", ["line 1, column 19", "`port`", "in line 1 already"]),
        (
            "listen: {workers: 0}",
            ["`listen.workers`: ", "or must be 'auto' (got 0); for example: workers: auto"],
        ),
        ("redis: {port: 0}", ["`redis.port`: ", "for example: port: 6379"]),
        ("listen: {tls: {certificate: a.pem}}", ["`listen.tls.key`: it is required; for example: key: "]),
        ("listen: {tls: yes}", ["`listen.tls`: a section", "for example: tls: {certificate: "]),
        (
            "backends: [{url: 'http://a', models: [{a: b}]}]",
            ["backends[0].models", "a list of names, or a map"],
        ),
        ("backends: [{url: 'http://a', models: {a: }}]", ["backends[0].models.a", "(got nothing)"]),
        (
            f"keys: [{{id: a, sha256: {HASH}}}, {{id: b, sha256: {HASH}}}]",
            ["keys[1].sha256", "keys[0]"],
        ),
        ("keys: [{id: a, key_file: k}, {id: b, key_file: k}]", ["keys[1].key_file", "used twice", "keys[0]"]),
        ("limits: {idle: 9999999999h}", ["limits.idle", "too large", "idle: 10m"]),
        ("queue: {max_bytes: 100000000GiB}", ["queue.max_bytes", "too large"]),
        ("models: [{name: m, output_prior: 1e300}]", ["models[0].output_prior", "less than or equal"]),
        ("state_dir: ''", ["state_dir", "must not be empty"]),
        ("listen:\n\tport: 80", ["line 2, column 1", "a tab; YAML is indented with spaces"]),
        ('policy: "a\0b"', ["line 1", "U+0000"]),
        ("paths: " + "[" * 5000, ["nested too deeply"]),
        ("1: 2", ["its keys are texts"]),
        ("- a", ["map of keys"]),
        ("a: [", ["not valid YAML at line 1"]),
    ],
)
def test_an_error_names_the_key_what_is_wrong_and_an_example(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "tokenweir.yaml")
    for word in ["tokenweir.yaml", *words]:
        assert word in str(caught.value)


def test_a_server_by_its_ip_address_is_verified_by_a_name_of_its_certificate_or_not_at_all() -> None:
    text = "backends: [{url: 'https://10.0.0.1', tls: {%s}}]"
    assert parse(text % "server_name: gpu.example", "t").backends[0].tls.server_name == "gpu.example"
    assert not parse(text % "verify: false", "t").backends[0].tls.verify


def test_an_error_from_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="TOKENWEIR_LISTEN__PORT"):
        parse("", "tokenweir.yaml", {"TOKENWEIR_LISTEN__PORT": "many"})
    with pytest.raises(ConfigError, match="TOKENWEIR_LISTNE__PORT"):
        parse("", "tokenweir.yaml", {"TOKENWEIR_LISTNE__PORT": "1"})


def test_a_variable_for_a_text_may_look_like_a_number_or_a_date() -> None:
    given = {
        "TOKENWEIR_ADMIN__TOKEN": "12345678901234567890",
        "TOKENWEIR_DEFAULT_MODEL": "2024-01-01",
        "TOKENWEIR_GATEWAY_ID": "no",
    }
    config = parse("", "t", given)
    assert config.admin.token == "12345678901234567890"
    assert (config.default_model, config.gateway_id) == ("2024-01-01", "no")
    assert parse("", "t", {"TOKENWEIR_DEFAULT_MODEL": ""}).default_model is None


def test_origins_are_kept_as_browsers_send_them() -> None:
    text = (
        "listen: {cors_origins: ['https://Chat.Example:443/', 'http://a:80', 'http://[::1]:3000', 'app://x']}"
    )
    expected = ["https://chat.example", "http://a", "http://[::1]:3000", "app://x"]
    assert parse(text, "t").listen.cors_origins == expected


def test_a_list_is_set_as_a_whole_by_its_variable() -> None:
    with pytest.raises(ConfigError, match="set TOKENWEIR_BACKENDS to its whole value, as YAML"):
        parse("backends: []", "t", {"TOKENWEIR_BACKENDS__0__URL": "http://a"})


def test_a_file_that_is_no_text_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tokenweir.yaml"
    path.write_bytes(b"backends: []\npolicy: \xff")
    with pytest.raises(ConfigError, match="not UTF-8 text: the byte 0xff in line 2"):
        load(path, {})


def test_a_missing_file_shows_the_shortest_that_works(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="backends: "):
        load(tmp_path / "tokenweir.yaml", {})


def test_the_schema_for_editors_knows_every_section() -> None:
    schema = json.loads(render())
    assert {"backends", "models", "keys", "limits", "policy"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "text",
    [
        "queue: {max_wait: 2h}",
        "queue: {low: {max_wait: 2h}}",
        "queue: {window: 99}",
        "sessions: {memory: 1s}",
        "sessions: {transfer: {limit: 20m}}",
        "burst: {max_tokens: 2000000}",
        "limits: {tries: 11}",
    ],
)
def test_what_gateways_would_refuse_is_refused_where_it_is_written(text: str) -> None:
    key = re.findall(r"\w+", text)[-2]
    with pytest.raises(ConfigError, match=key):
        parse(text, "t")


def test_a_bare_off_is_a_rule_though_yaml_reads_it_as_false() -> None:
    assert parse("backends: [http://a]\nprecision: {rule: off}\n", "test").precision.rule == "off"
