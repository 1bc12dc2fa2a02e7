"""Wrong actuators are named with what would be right."""

from __future__ import annotations

import pytest

from tokenweir.config import ConfigError
from tokenweir.config.loading import parse


def problem(members):
    with pytest.raises(ConfigError) as caught:
        parse(f"backends: [{{url: 'http://a:1', {members}}}]", "tokenweir.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (
            "actuator: {}",
            ["backends[0].actuator", "give one of docker, kubernetes, command, webhook", "docker: vllm-a"],
        ),
        ("actuator: {docker: x, webhook: {url: 'http://a', secret_file: s}}", ["given: docker, webhook"]),
        ("actuator: {doker: x}", ["actuator.doker", "did you mean `docker`"]),
        ("actuator: {docker: {container: x, host: 'http://a'}}", ["docker.host", "unix:///", "tcp://"]),
        ("actuator: {docker: {container: x, host: 'tcp://a', key: k}}", ["certificate", "belong together"]),
        ("actuator: {docker: {container: x, ca: c}}", ["tcp://"]),
        ("actuator: {docker: {}}", ["docker.container", "required"]),
        ("actuator: {kubernetes: {namespace: x}}", ["one of `pod`, `selector` and `workload`"]),
        ("actuator: {kubernetes: {workload: x}}", ["deployment/NAME"]),
        ("actuator: {kubernetes: {workload: daemonset/x}}", ["deployment/NAME"]),
        ("actuator: {command: {start: [a]}}", ["`restart`, or both `stop` and `start`"]),
        ("actuator: {command: {restart: [a], apply: [b]}}", ["{arguments}"]),
        (
            "actuator: {command: {restart: 'systemctl restart x'}}",
            ["command.restart", "[systemctl, restart"],
        ),
        ("actuator: {webhook: {url: 'ftp://a', secret_file: s}}", ["webhook.url", "http://"]),
        ("actuator: {webhook: {url: 'https://u:p@a', secret_file: s}}", ["no user or password"]),
        ("actuator: {docker: x, timeout: 10ms}", ["actuator.timeout", "at least 1s"]),
        ("weights: {path: /m, agent: 'gpu-a'}", ["weights.agent", "http://gpu-a:9401"]),
        ("weights: {path: /m, token_file: t}", ["give `agent`"]),
        ("cards: [0]", ["`dcgm_url` or `nvml`"]),
        ("nvml: true, dcgm_url: 'http://a:9400/metrics'", ["give one"]),
        ("dcgm_url: 'http://a:9400/metrics', cards: [1.5]", ["cards[0]"]),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(members, words):
    text = problem(members)
    for word in words:
        assert word in text


def test_short_forms():
    config = parse(
        "backends: [{url: 'http://a:1', nvml: true, cards: 0, actuator: {docker: vllm}, weights: /models/m}]",
        "x",
    )
    (backend,) = config.backends
    assert backend.cards == ["0"]
    assert (backend.actuator.kind, backend.actuator.docker.container) == ("docker", "vllm")
    assert (backend.weights.path, backend.weights.agent) == ("/models/m", None)
    assert (backend.actuator.timeout, backend.actuator.docker.grace) == (120_000, 10_000)
