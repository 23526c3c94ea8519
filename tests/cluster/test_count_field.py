"""Objects without a scale subresource on a real API server: KServe's kinds by their own resource definitions."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kubernetes import client

from api.schemas.applications import KubernetesScale
from deploy.actuators.base import Step
from deploy.actuators.kubernetes_scale.actuator import KubernetesScaleActuator
from deploy.common.errors import ActuationError, OvertakenError
from deploy.common.kubernetes_client import Kubernetes, KubernetesAccess, kubernetes_server
from tests.testbed.contracts import definition, needs_contracts
from tests.testbed.engine_pages import engine_pages
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.leader_worker_sets import installed
from tests.testbed.manifests import pod_spec
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.anyio, needs_contracts]

API_VERSION = "serving.kserve.io/v1alpha2"
DECODE, PREFILL = "H100-SXM/decode", "H100-SXM/prefill"
COMPONENT = "llminferenceservice-workload"
PREFILL_PODS = {"app.kubernetes.io/name": "chat", "app.kubernetes.io/component": f"{COMPONENT}-prefill"}


@pytest.fixture
async def kube(kube_api: KubeApi) -> AsyncIterator[Kubernetes]:
    async with kubernetes_server(KubernetesAccess(kubeconfig=kube_api.kubeconfig_path)) as server:
        yield server


@pytest.fixture
def service(kube_api: KubeApi, kube_namespace: str) -> Iterator[dict[str, Any]]:
    """Create an LLMInferenceService of one decode and two prefill replicas, without its controller."""
    with installed(kube_api, definition("LLMInferenceService")):
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "LLMInferenceService",
            "metadata": {"name": "chat", "namespace": kube_namespace},
            "spec": {"model": {"uri": "hf://meta/chat"}, "replicas": 1, "prefill": {"replicas": 2}},
        }
        custom = client.CustomObjectsApi(kube_api.connect())
        custom.create_namespaced_custom_object(*_place(kube_namespace), manifest)
        yield manifest


def _place(namespace: str) -> tuple[str, str, str, str]:
    group, _, version = API_VERSION.partition("/")
    return group, version, namespace, "llminferenceservices"


def _spec(kube_api: KubeApi, namespace: str) -> dict[str, Any]:
    found = client.CustomObjectsApi(kube_api.connect()).get_namespaced_custom_object(*_place(namespace), "chat")
    return dict(found["spec"])


def _pod(api: client.ApiClient, namespace: str, name: str, component: str, nodes: dict[str, str]) -> None:
    labels = {"app.kubernetes.io/name": "chat", "app.kubernetes.io/component": component}
    body = {"metadata": {"name": name, "labels": labels}, "spec": pod_spec(gpus=1, nodes=nodes)}
    client.CoreV1Api(api).create_namespaced_pod(namespace, body)


async def test_prefill_and_decode_of_an_llm_inference_service_are_scaled_by_their_fields(
    *,
    kube: Kubernetes,
    kube_api: KubeApi,
    kube_client: client.ApiClient,
    kube_namespace: str,
    gpu_nodes: GpuNodes,
    service: dict[str, Any],
) -> None:
    gpu_nodes.add(1)
    _pod(kube_client, kube_namespace, "decode-0", COMPONENT, gpu_nodes.selector)
    _pod(kube_client, kube_namespace, "prefill-0", f"{COMPONENT}-prefill", gpu_nodes.selector)
    core = client.CoreV1Api(kube_client)
    wait_for(
        lambda: [pod.status.phase for pod in core.list_namespaced_pod(kube_namespace).items],
        lambda phases: phases == ["Running", "Running"],
        what="two running pods",
    )
    scaled = {"api_version": API_VERSION, "kind": "LLMInferenceService", "name": "chat"}
    prefill = scaled | {"replicas_field": "/spec/prefill/replicas", "pod_labels": PREFILL_PODS}
    application = {"namespace": kube_namespace, "objects": {DECODE: scaled, PREFILL: prefill}}
    with engine_pages() as pages:
        driver = KubernetesScaleActuator(kube, pages.client, KubernetesScale.model_validate(application))
        observed = await driver.observe()
        assert (observed.requested, observed.note) == ({DECODE: 1, PREFILL: 2}, None)
        assert observed.running == {DECODE: 1, PREFILL: 1}
        await driver.apply(Step(part=DECODE, replicas_before=1, replicas_after=3))
        await driver.apply(Step(part=PREFILL, replicas_before=2, replicas_after=5))
        await driver.apply(Step(part=PREFILL, replicas_before=2, replicas_after=5))  # a repetition
        assert _spec(kube_api, kube_namespace) == service["spec"] | {"replicas": 3, "prefill": {"replicas": 5}}
        with pytest.raises(OvertakenError, match=r"its count was last written by fleetwright$"):
            await driver.apply(Step(part=DECODE, replicas_before=2, replicas_after=1))

        service["spec"] |= {"replicas": 3, "prefill": {"replicas": 5}}
        kube_api.apply(service, field_manager="gitops")
        with pytest.raises(ActuationError, match=r"field manager gitops, which applies spec\.replicas"):
            await driver.apply(Step(part=DECODE, replicas_before=3, replicas_after=4))
