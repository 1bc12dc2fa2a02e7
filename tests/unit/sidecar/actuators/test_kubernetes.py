"""Pods and workloads, acted on through a Kubernetes API over HTTP."""

from __future__ import annotations

import sys

import pytest

from sidecar.actuators.actuator import Action, ActuationError, Order
from sidecar.actuators.kubernetes_api import RESTARTED_AT, KubernetesDriver
from tests.unit.sidecar.kubernetes_server import pod
from tokenweir.config.actuators import KubernetesConfig

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


@pytest.fixture
def driver(kubernetes, tmp_path):
    """A driver by the members of its configuration."""
    kubeconfig = kubernetes.kubeconfig(tmp_path)

    def make(**members):
        config = KubernetesConfig(namespace="llm", kubeconfig=kubeconfig, **members)
        return KubernetesDriver(config, tmp_path)

    return make


def order(action, *arguments):
    return Order("1", "a", Action(action), arguments)


async def test_a_pod_is_restarted_by_deleting_it(kubernetes, driver):
    kubernetes.pods = {"vllm-a-0": pod("vllm-a-0", RUNNING)}
    text = await driver(pod="vllm-a-0").act(order("restart"))
    assert "deleted vllm-a-0" in text
    assert kubernetes.pods == {}


async def test_a_pod_without_an_owner_is_not_deleted(kubernetes, driver):
    kubernetes.pods = {"vllm-a-0": pod("vllm-a-0", RUNNING, owned=False)}
    with pytest.raises(ActuationError, match="no owner"):
        await driver(pod="vllm-a-0").act(order("restart"))
    assert "vllm-a-0" in kubernetes.pods


async def test_pods_are_found_by_their_labels(kubernetes, driver):
    kubernetes.pods = {
        "a": pod("a", RUNNING, labels={"app": "vllm-a"}),
        "b": pod("b", RUNNING, labels={"app": "vllm-b"}),
    }
    await driver(selector="app=vllm-b").act(order("restart"))
    assert list(kubernetes.pods) == ["a"]
    with pytest.raises(ActuationError, match="no pod app=gone in namespace llm"):
        await driver(selector="app=gone").act(order("restart"))


async def test_a_pod_that_is_not_there_is_named(driver):
    with pytest.raises(ActuationError, match='404: pods "gone" not found'):
        await driver(pod="gone").act(order("restart"))


@pytest.mark.parametrize("action", ["start", "stop"])
async def test_a_pod_can_only_be_restarted(driver, action):
    with pytest.raises(ActuationError, match="name its `workload`"):
        await driver(pod="vllm-a-0").act(order(action))


@pytest.mark.parametrize(
    ("workload", "path"), [("deployment", "deployments"), ("statefulset", "statefulsets")]
)
async def test_a_workload_is_rolled_as_kubectl_does(kubernetes, driver, workload, path):
    assert await driver(workload=f"{workload}/vllm-a").act(order("restart")) == f"rolled {workload}/vllm-a"
    ((verb, where, body),) = kubernetes.calls
    assert (verb, where) == ("PATCH", f"/apis/apps/v1/namespaces/llm/{path}/vllm-a")
    assert list(body["spec"]["template"]["metadata"]["annotations"]) == [RESTARTED_AT]
    assert kubernetes.content_types == ["application/strategic-merge-patch+json"]


async def test_a_workload_is_started_and_stopped_by_its_scale(kubernetes, driver):
    made = driver(workload="deployment/vllm-a", replicas=2)
    assert "from 1 to 0" in await made.act(order("stop"))
    assert kubernetes.replicas == 0
    assert "0 replicas already" in await made.act(order("stop"))
    assert "from 0 to 2" in await made.act(order("start"))
    assert kubernetes.replicas == 2


async def test_a_workload_with_more_pods_than_asked_for_is_not_scaled_down_by_a_start(kubernetes, driver):
    kubernetes.replicas = 5
    assert "5 replicas already" in await driver(workload="deployment/vllm-a").act(order("start"))
    assert kubernetes.replicas == 5


async def test_a_workload_gets_other_arguments(kubernetes, driver):
    await driver(workload="deployment/vllm-a").act(order("apply", "--quantization", "fp8"))
    body = kubernetes.calls[-1][2]
    assert body["spec"]["template"]["spec"]["containers"] == [
        {"name": "vllm", "args": ["--quantization", "fp8"]}
    ]
    await driver(workload="deployment/vllm-a", container="proxy").act(order("apply", "-v"))
    assert kubernetes.calls[-1][2]["spec"]["template"]["spec"]["containers"][0]["name"] == "proxy"


async def test_what_the_account_may_not_do_is_said_in_the_apis_words(kubernetes, driver):
    kubernetes.forbidden = True
    with pytest.raises(ActuationError, match="403: pods is forbidden"):
        await driver(selector="app=vllm-a").act(order("restart"))


async def test_an_api_that_is_away_is_said(kubernetes, tmp_path):
    kubernetes.port = 9
    config = KubernetesConfig(namespace="llm", pod="x", kubeconfig=kubernetes.kubeconfig(tmp_path))
    with pytest.raises(ActuationError, match="does not answer"):
        await KubernetesDriver(config, tmp_path).act(order("restart"))


async def test_without_the_package_it_is_said_how_to_get_it(driver, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ActuationError, match=r"requirements-extras\.lock"):
        await driver(pod="x").act(order("restart"))


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path):
    config = KubernetesConfig(pod="x", kubeconfig="gone.yaml")
    with pytest.raises(ActuationError, match="no way to the Kubernetes API"):
        await KubernetesDriver(config, tmp_path).act(order("restart"))


def test_a_dry_run_says_what_would_be_done(driver):
    made = driver(workload="deployment/vllm-a")
    assert made.describe(order("stop")) == "scale to 0 deployment/vllm-a in namespace llm"
    assert driver(selector="app=x").describe(order("restart")) == "delete the pods app=x in namespace llm"
