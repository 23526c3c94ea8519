"""Tests that objects with a scale subresource follow their plan on a real API server with real controllers.

Deployments and StatefulSets are driven by kube-controller-manager.  A stand-in of the LeaderWorkerSet controller
creates the pods of its groups.  The pods run nothing, so one loopback server serves the pages of their engines.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from api.schemas.applications import KubernetesScale
from api.schemas.targets import Mode, Phase, TargetStatus
from deploy.actuators.base import Drain, Step, TargetSnapshot
from deploy.actuators.kubernetes_scale.actuator import KubernetesScaleActuator, kubernetes_scale_actuators
from deploy.actuators.registry import Actuators
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError, OvertakenError
from deploy.common.kubernetes_client import Kubernetes, KubernetesAccess, Patch, kubernetes_server
from deploy.controller.controller import Controller
from deploy.router.pods import PodEngines, PodReplicas
from tests.deploy.controller.harness import Harness, harness_of
from tests.helm.chart import one, render
from tests.testbed.engine_pages import EnginePages, engine_pages
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.helm import Helm
from tests.testbed.kube_api import KubeApi
from tests.testbed.leader_worker_sets import LeaderWorkerSets, definition, installed
from tests.testbed.manifests import deployment, stateful_set
from tests.testbed.service import RunningService
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.anyio]

H100, L4, A100 = "H100-SXM", "L4", "A100-SXM-80GB"  # names of the catalogue
CONTRACTS = Path(__file__).parents[3] / "shared" / "data" / "contracts"
KEDA = CONTRACTS / "keda" / "crd" / "keda.sh_scaledobjects.yaml"
LWS = CONTRACTS / "lws" / "crd" / "leaderworkerset.x-k8s.io_leaderworkersets.slim.yaml"
RIGHTS = {"apps": ["deployments", "statefulsets"], "leaderworkerset.x-k8s.io": ["leaderworkersets"]}
KINDS = {
    H100: {"kind": "Deployment", "name": "chat"},
    L4: {"kind": "StatefulSet", "name": "chat-l4"},
    A100: {"api_version": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "chat-groups"},
}


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


@pytest.fixture
def access(helm3: Helm, kube_api: KubeApi, kube_namespace: str) -> KubernetesAccess:
    """Return the access that the chart gives to the controller, and no more."""
    values = ["--set", "controller.kubernetes.enabled=true,controller.kubernetes.drain=true"]
    scale = ["--set-json", f"controller.kubernetes.scale={json.dumps(RIGHTS)}"]
    objects = render(helm3, "--namespace", kube_namespace, *values, *scale)
    account = one(objects, "ServiceAccount", "-controller")
    for item in (account, one(objects, "Role"), one(objects, "RoleBinding")):
        kube_api.apply(item)
    name = account["metadata"]["name"]
    return KubernetesAccess(kubeconfig=kube_api.service_account_kubeconfig(namespace=kube_namespace, name=name))


@pytest.fixture
async def kube(access: KubernetesAccess) -> AsyncIterator[Kubernetes]:
    async with kubernetes_server(access) as server:
        yield server


@pytest.fixture
def pages() -> Iterator[EnginePages]:
    with engine_pages() as found:
        yield found


@pytest.fixture
def chat(kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes) -> str:
    """Create the Deployment `chat` of three ready pods, as `kubectl create` does."""
    gpu_nodes.add(2)
    manifest = deployment("chat", kube_namespace, gpus=1, replicas=3, nodes=gpu_nodes.selector)
    client.AppsV1Api(kube_client).create_namespaced_deployment(kube_namespace, manifest)
    wait_for(lambda: _ready(kube_client, kube_namespace), lambda ready: len(ready) == 3, what="three ready pods")
    return kube_namespace


class Interposed:
    """The API server; something happens just before each patch of a scale."""

    def __init__(self, kube: Kubernetes, before: Callable[[], None]) -> None:
        self.kube, self.before = kube, before

    async def get(self, path: str, **query: str) -> Any:
        return await self.kube.get(path, **query)

    async def patch(self, path: str, patch: Patch) -> None:
        if path.endswith("/scale"):
            self.before()
        await self.kube.patch(path, patch)


def application(namespace: str, *parts: str, port: int | None = None) -> KubernetesScale:
    drain = {} if port is None else {"drain": {"metrics_port": port}}
    objects = {part: KINDS[part] for part in parts or (H100,)}
    return KubernetesScale.model_validate({"namespace": namespace, "objects": objects} | drain)


def actuator(kube: Kubernetes, pages: EnginePages, namespace: str) -> KubernetesScaleActuator:
    return KubernetesScaleActuator(kube, pages.client, application(namespace))


def controlled(harness: Harness, kube: Kubernetes, pages: EnginePages) -> Controller:
    clock = Clock(now=harness.clock.now)
    return harness.controller(
        actuators=Actuators(kubernetes_scale=kubernetes_scale_actuators(kube, pages.client, clock=clock))
    )


@pytest.fixture
def sets(kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str) -> Iterator[LeaderWorkerSets]:
    with installed(kube_api, definition(LWS)):
        yield LeaderWorkerSets(kube_client, kube_namespace)


async def test_a_deployment_a_stateful_set_and_a_leader_worker_set_follow_the_plan(
    *,
    harness: Harness,
    kube: Kubernetes,
    kube_client: client.ApiClient,
    sets: LeaderWorkerSets,
    chat: str,
    gpu_nodes: GpuNodes,
    pages: EnginePages,
) -> None:
    manifest = stateful_set("chat-l4", chat, gpus=1, replicas=0, nodes=gpu_nodes.selector)
    client.AppsV1Api(kube_client).create_namespaced_stateful_set(chat, manifest)
    sets.create("chat-groups", replicas=1, size=2, nodes=gpu_nodes.selector)
    old, new = {H100: 3, L4: 0, A100: 1}, {H100: 1, L4: 2, A100: 3}
    await harness.register_real("llm", application(chat, *old), plan_id=await harness.plan(new))
    controller = controlled(harness, kube, pages)
    for before, planned in ((old, new), (new, old)):
        await harness.change("llm", plan_id=await harness.plan(planned))
        statuses = await _rounds_until(harness, controller, Phase.APPLIED, each=sets.reconcile)
        assert statuses[-1].applied == planned
        for gpu in planned:
            lowest = min(status.applied[gpu] for status in statuses if status.applied)
            assert lowest == min(before[gpu], planned[gpu])
    assert sets.pods("chat-groups") == ["chat-groups-0", "chat-groups-0-1"]


async def test_a_count_changed_meanwhile_wins_and_a_changed_status_does_not_stop_the_step(
    kube: Kubernetes, kube_client: client.ApiClient, chat: str, pages: EnginePages
) -> None:
    apps = client.AppsV1Api(kube_client)

    def annotate() -> None:
        if not (changed := apps.read_namespaced_deployment("chat", chat)).metadata.annotations.get("note"):
            changed.metadata.annotations["note"] = "changed"
            apps.replace_namespaced_deployment("chat", chat, changed)

    step = Step(part=H100, replicas_before=3, replicas_after=2)
    await actuator(Interposed(kube, annotate), pages, chat).apply(step)
    assert apps.read_namespaced_deployment_scale("chat", chat).spec.replicas == 2

    def scale() -> None:
        apps.patch_namespaced_deployment_scale("chat", chat, {"spec": {"replicas": 5}}, field_manager="by-hand")

    step = Step(part=H100, replicas_before=2, replicas_after=1)
    with pytest.raises(OvertakenError, match=rf"Deployment {chat}/chat changed .* last written by by-hand$"):
        await actuator(Interposed(kube, scale), pages, chat).apply(step)
    assert apps.read_namespaced_deployment_scale("chat", chat).spec.replicas == 5


async def test_a_horizontal_pod_autoscaler_is_named_and_the_count_is_left_to_it(
    harness: Harness, kube: Kubernetes, kube_client: client.ApiClient, chat: str, pages: EnginePages
) -> None:
    body = {
        "metadata": {"name": "chat-load"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
            "minReplicas": 3,
            "maxReplicas": 9,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                }
            ],
        },
    }
    client.AutoscalingV2Api(kube_client).create_namespaced_horizontal_pod_autoscaler(chat, body)
    await harness.register_real("llm", application(chat), plan_id=await harness.plan({H100: 2}), mode=Mode.RECOMMEND)
    controller = controlled(harness, kube, pages)
    recommended = (await _rounds_until(harness, controller, Phase.RECOMMENDED))[-1]
    assert (recommended.planned, recommended.applied) == ({H100: 2}, {H100: 3})
    assert "Deployment chat is scaled by HorizontalPodAutoscaler chat-load" in (recommended.message or "")
    await harness.change("llm", mode=Mode.APPLY)
    failed = (await _rounds_until(harness, controller, Phase.FAILED))[-1]
    assert f"Deployment {chat}/chat is scaled by HorizontalPodAutoscaler chat-load: publish" in (failed.message or "")
    assert client.AppsV1Api(kube_client).read_namespaced_deployment_scale("chat", chat).spec.replicas == 3


async def test_a_scaled_object_of_keda_is_named(
    kube_api: KubeApi, kube: Kubernetes, chat: str, pages: EnginePages
) -> None:
    driver = actuator(kube, pages, chat)
    assert (await driver.observe()).note is None, "an API server without KEDA has no ScaledObject"
    trigger = {
        "type": "metrics-api",
        "metadata": {"url": "http://api", "valueLocation": "replicas", "targetValue": "1"},
    }
    with installed(kube_api, definition(KEDA, kind="ScaledObject", group="keda.sh", version="v1alpha1")):
        kube_api.apply(
            {
                "apiVersion": "keda.sh/v1alpha1",
                "kind": "ScaledObject",
                "metadata": {"name": "chat-keda", "namespace": chat},
                "spec": {"scaleTargetRef": {"name": "chat"}, "triggers": [trigger]},
            }
        )
        assert (await driver.observe()).note == "Deployment chat is scaled by ScaledObject chat-keda"
        with pytest.raises(ActuationError, match=rf"Deployment {chat}/chat is scaled by ScaledObject chat-keda: "):
            await driver.apply(Step(part=H100, replicas_before=3, replicas_after=2))


async def test_a_manager_that_applies_the_count_is_named(
    kube_api: KubeApi, kube: Kubernetes, kube_namespace: str, gpu_nodes: GpuNodes, pages: EnginePages
) -> None:
    manifest = deployment("chat", kube_namespace, gpus=1, replicas=3, nodes=gpu_nodes.selector)
    kube_api.apply(manifest, field_manager="gitops")
    driver = actuator(kube, pages, kube_namespace)
    with pytest.raises(ActuationError, match=r"field manager gitops, which applies spec\.replicas"):
        await driver.apply(Step(part=H100, replicas_before=3, replicas_after=2))
    del manifest["spec"]["replicas"]  # the manager gives the count up, and the API server sets its default, 1
    kube_api.apply(manifest, field_manager="gitops")
    await driver.apply(Step(part=H100, replicas_before=1, replicas_after=2))
    kube_api.apply(manifest, field_manager="gitops")  # which no longer resets the count
    assert (await driver.observe()).requested == {H100: 2}


async def test_a_scale_down_waits_for_running_requests_and_stops_the_drained_pods(
    harness: Harness, kube: Kubernetes, kube_client: client.ApiClient, chat: str, pages: EnginePages
) -> None:
    busy, short, idle = sorted(_ready(kube_client, chat).items())
    pages.requests = {busy[1]: 9, short[1]: 2, idle[1]: 0}
    app = application(chat, port=pages.port)
    await harness.register_real("llm", app, plan_id=await harness.plan({H100: 1}), max_step=2)
    controller = controlled(harness, kube, pages)
    for _ in range(4):
        await harness.round(controller)
    waiting = await harness.status("llm")
    assert waiting.phase is Phase.APPLYING
    assert f"waits for 2 running requests on pod {short[0]}," in (waiting.message or "")
    assert set(_ready(kube_client, chat)) == {busy[0], short[0], idle[0]}
    assert await _receiving(kube, chat) == [f"http://{busy[1]}:8000"], "routers stop sending first"

    killed = controlled(harness, Interposed(kube, _kill), pages)
    pages.requests[short[1]] = 0
    with pytest.raises(Killed):
        await harness.round(killed)
    assert len(_ready(kube_client, chat)) == 3

    controller = controlled(harness, kube, pages)
    applied = (await _rounds_until(harness, controller, Phase.APPLIED))[-1]
    assert applied.applied == {H100: 1}
    assert set(_ready(kube_client, chat)) == {busy[0]}, "the ReplicaSet kept the pod that was not marked"


async def test_a_stateful_set_drains_its_highest_ordinal(
    kube: Kubernetes,
    kube_client: client.ApiClient,
    kube_namespace: str,
    gpu_nodes: GpuNodes,
    pages: EnginePages,
) -> None:
    gpu_nodes.add(1)
    manifest = stateful_set("chat-l4", kube_namespace, gpus=1, replicas=2, nodes=gpu_nodes.selector)
    client.AppsV1Api(kube_client).create_namespaced_stateful_set(kube_namespace, manifest)
    ready = wait_for(lambda: _ready(kube_client, kube_namespace), lambda found: len(found) == 2, what="two ready pods")
    pages.requests = {ready["chat-l4-0"]: 0, ready["chat-l4-1"]: 3}
    now = datetime.now(UTC)
    clock = Clock(now=lambda: now)
    driver = KubernetesScaleActuator(kube, pages.client, application(kube_namespace, L4, port=pages.port), clock)
    snapshot = await _drained(driver, keep=1)
    assert "waits for 3 running requests on pod chat-l4-1," in (snapshot.drains[L4].waits_for or "")
    pages.requests[ready["chat-l4-1"]] = 0
    now += timedelta(seconds=5)
    assert (await driver.observe()).drains[L4].waits_for is None
    await driver.apply(Step(part=L4, replicas_before=2, replicas_after=1))
    wait_for(
        lambda: _ready(kube_client, kube_namespace),
        lambda found: set(found) == {"chat-l4-0"},
        what="one pod that stays",
    )


class Killed(BaseException):
    """The controller's process ends here."""


def _kill() -> None:
    raise Killed


async def _receiving(kube: Kubernetes, namespace: str) -> list[str]:
    """Return the addresses to which a router sends new requests."""
    upstream, engines = Addresses(), PodEngines(namespace=namespace, selector="app=chat")
    await PodReplicas(kube, {"chat": engines}, {"chat": upstream}, 1)()
    return upstream.urls


class Addresses:
    def __init__(self) -> None:
        self.urls: list[str] = []

    def set_urls(self, urls: Iterable[str]) -> None:
        self.urls = list(urls)


async def _drained(driver: KubernetesScaleActuator, *, keep: int) -> TargetSnapshot:
    await driver.apply(Drain(part=L4, keep=keep))
    return await driver.observe()


async def _rounds_until(
    harness: Harness, controller: Controller, phase: Phase, *, each: Callable[[], None] = lambda: None
) -> list[TargetStatus]:
    """Reconcile until the target is in a phase; return every report."""
    statuses: list[TargetStatus] = []
    async with asyncio.timeout(PATIENCE_S):
        while not statuses or statuses[-1].phase is not phase:
            each()
            await harness.round(controller)
            statuses.append(await harness.status("llm"))
            await asyncio.sleep(0.05)
    return statuses


def _ready(api: client.ApiClient, namespace: str) -> dict[str, str]:
    """Return the addresses of the ready pods that stay, by name."""
    pods = client.CoreV1Api(api).list_namespaced_pod(namespace).items
    return {
        pod.metadata.name: pod.status.pod_ip
        for pod in pods
        if not pod.metadata.deletion_timestamp
        and any((each.type, each.status) == ("Ready", "True") for each in pod.status.conditions or ())
    }
