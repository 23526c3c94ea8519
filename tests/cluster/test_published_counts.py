"""The real HPA controller scales Deployments by the counts that the service publishes: through the real
prometheus-adapter and a real Prometheus, by Fleetwright's own names and by those of llm-d."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.testbed.kube_api import KubeApi
from tests.testbed.manifests import deployment
from tests.testbed.prometheus import Prometheus
from tests.testbed.prometheus_adapter import GROUP, VERSION, PrometheusAdapter
from tests.testbed.published import CONTRACTS, EXAMPLES, Publisher, documents, needs_contracts, scrape, two_replicas
from tests.testbed.server import StartServer
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.prometheus]
LLM_D = CONTRACTS / "llm-d-wva" / "samples"
# As the Prometheus operator scrapes: `namespace` is the one of the service, and the exported one is renamed.
OPERATOR_JOB = {
    "job_name": "operator",
    "metrics_path": "/metrics/llm-d",
    "static_configs": [{"labels": {"namespace": "fleetwright"}}],
}


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Everything between the service and the HPA controller."""

    kube_api: KubeApi
    client: client.ApiClient
    prometheus: Prometheus
    adapter: PrometheusAdapter

    def external_metric(self, manifest: dict[str, Any]) -> list[str]:
        """The values that the HPA controller receives for the only metric of an HPA."""
        (metric,) = manifest["spec"]["metrics"]
        wanted = metric["external"]["metric"]
        selector = ",".join(f"{label}={value}" for label, value in wanted["selector"]["matchLabels"].items())
        found = client.CustomObjectsApi(self.client).list_namespaced_custom_object(
            GROUP, VERSION, manifest["metadata"]["namespace"], wanted["name"], label_selector=selector
        )
        return [item["value"] for item in found["items"]]

    def replicas(self, manifest: dict[str, Any]) -> int:
        """The count of the Deployment that an HPA scales."""
        name, namespace = manifest["spec"]["scaleTargetRef"]["name"], manifest["metadata"]["namespace"]
        return int(client.AppsV1Api(self.client).read_namespaced_deployment(name, namespace).spec.replicas)

    def wait_for_replicas(self, manifest: dict[str, Any], count: int) -> None:
        wait_for(lambda: self.replicas(manifest), count.__eq__, what=f"{count} replicas")

    def failures(self, manifest: dict[str, Any]) -> list[str]:
        """Why an HPA does not scale."""
        metadata = manifest["metadata"]
        found = client.AutoscalingV2Api(self.client).read_namespaced_horizontal_pod_autoscaler(
            metadata["name"], metadata["namespace"]
        )
        active = (each for each in found.status.conditions if each.type == "ScalingActive")
        return [each.reason for each in active if each.status == "False"]


@pytest.fixture
def stack(
    kube_api: KubeApi, kube_client: client.ApiClient, prometheus: Prometheus, prometheus_adapter: PrometheusAdapter
) -> Stack:
    return Stack(kube_api=kube_api, client=kube_client, prometheus=prometheus, adapter=prometheus_adapter)


@contextmanager
def publishing(start_server: StartServer, url: str, *, namespace: str, **objects: str) -> Iterator[Publisher]:
    server = start_server(url, "--no-controller", publish="llm-d,aibrix", metrics_interval_s="0.1")
    with server.client() as api:
        yield Publisher.register(server, api, namespace=namespace, objects=objects)


def external_rules(path: Path) -> list[dict[str, Any]]:
    (values,) = documents(path)
    return list(values["rules"]["external"])


def test_an_hpa_follows_the_published_count_and_keeps_it_when_the_service_is_gone(
    start_server: StartServer, sqlite_url: str, stack: Stack, kube_namespace: str
) -> None:
    (manifest,) = documents(EXAMPLES / "hpa.yaml")
    manifest["metadata"]["namespace"] = kube_namespace
    name = manifest["spec"]["scaleTargetRef"]["name"]
    rules = external_rules(EXAMPLES / "prometheus-adapter-values.yaml")
    stack.kube_api.apply(deployment(name, kube_namespace, gpus=1, replicas=1, nodes={}))

    with publishing(start_server, sqlite_url, namespace=kube_namespace, **{"H100-SXM": name}) as publisher:
        publisher.publish(3)
        scrape(stack.prometheus, {"job_name": "api"}, addresses=two_replicas(publisher))
        stack.prometheus.wait_for_samples("count(fleetwright_target_replicas_wanted) == 2")
        with stack.adapter.serving(rules, prometheus_url=stack.prometheus.url):
            stored = stack.kube_api.apply(manifest)
            assert stored["spec"]["behavior"]["scaleUp"]["tolerance"] == "0", "the server knows the field"
            stack.wait_for_replicas(manifest, 3)
            assert stack.external_metric(manifest) == ["3"], "one value for two replicas of the service"
            for count in (20, 21, 2):  # 21 is within the default tolerance of 20
                publisher.publish(count)
                stack.wait_for_replicas(manifest, count)

            publisher.server.kill()
            wait_for(
                lambda: stack.failures(manifest), ["FailedGetExternalMetric"].__eq__, what="an HPA without its metric"
            )
            assert stack.replicas(manifest) == 2


@needs_contracts
@pytest.mark.parametrize("scraped", ["by the operator", "by our example"])
def test_the_samples_of_llm_d_follow_the_published_count(
    start_server: StartServer, sqlite_url: str, stack: Stack, scraped: str
) -> None:
    (manifest,) = documents(LLM_D / "hpa.yaml")
    rules = external_rules(LLM_D / "prometheus-adapter-values.yaml")
    namespace, name = manifest["metadata"]["namespace"], manifest["spec"]["scaleTargetRef"]["name"]
    ((example,),) = documents(EXAMPLES / "llm-d-scrape.yaml")
    job = example | {"static_configs": OPERATOR_JOB["static_configs"]} if "example" in scraped else OPERATOR_JOB

    with (
        publishing(start_server, sqlite_url, namespace=namespace, **{"H100-SXM": name}) as publisher,
        scaled_deployment(stack, namespace, name),
    ):
        publisher.publish(4, running=2)
        scrape(stack.prometheus, job, addresses=[publisher.address])
        stack.prometheus.wait_for_samples("wva_desired_replicas == 4")
        with stack.adapter.serving(rules, prometheus_url=stack.prometheus.url):
            stack.kube_api.apply(manifest)
            stack.wait_for_replicas(manifest, 4)
            assert stack.external_metric(manifest) == ["4"]
            publisher.publish(7, running=4)
            stack.wait_for_replicas(manifest, 7)
        (ratio,) = stack.prometheus.query(f'wva_desired_ratio{{variant_name="{name}"}}')
        (current,) = stack.prometheus.query('wva_current_replicas{accelerator_type="H100-SXM"}')
        assert (ratio.value, current.value) == (1.75, 4)
        if "example" in scraped:  # the query of this sample selects the label that the operator renames
            (scaled_object,) = documents(LLM_D / "scaledobject.yaml")
            (trigger,) = scaled_object["spec"]["triggers"]
            (wanted,) = stack.prometheus.query(trigger["metadata"]["query"])
            assert wanted.value == 7


@contextmanager
def scaled_deployment(stack: Stack, namespace: str, name: str) -> Iterator[None]:
    """Create a Deployment in a namespace of a sample, and delete it with every HPA at the end."""
    core = client.CoreV1Api(stack.client)
    if namespace not in [each.metadata.name for each in core.list_namespace().items]:
        core.create_namespace({"metadata": {"name": namespace}})
    stack.kube_api.apply(deployment(name, namespace, gpus=1, replicas=1, nodes={}))
    yield
    client.AutoscalingV2Api(stack.client).delete_collection_namespaced_horizontal_pod_autoscaler(namespace)
    client.AppsV1Api(stack.client).delete_collection_namespaced_deployment(namespace)
