"""KEDA and AIBrix read the published counts: their objects are admitted by a real Kubernetes API server with their
resource definitions, and what their triggers name is read from a real service and a real Prometheus."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.schemas.tokens import TokenRequest, TokenScope
from tests.testbed.kube_api import KubeApi
from tests.testbed.prometheus import Prometheus
from tests.testbed.prometheus_adapter import Gjson
from tests.testbed.published import CONTRACTS, EXAMPLES, Publisher, documents, needs_contracts, scrape, two_replicas
from tests.testbed.server import StartServer
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.kubernetes
NAMESPACE = "inference"  # of the examples
PREFILL, DECODE = "H100-SXM/prefill", "H100-SXM/tp2-fp8-decode@0.7"  # names with everything that GJSON might read
AIBRIX = CONTRACTS / "aibrix"


@pytest.fixture
def publisher(start_server: StartServer, sqlite_url: str) -> Iterator[Publisher]:
    server = start_server(sqlite_url, "--no-controller", publish="aibrix", metrics_interval_s="0.1")
    objects = {PREFILL: "chat-prefill", DECODE: "chat-decode", "L4": "chat-h100"}
    with server.client() as api:
        published = Publisher.register(server, api, namespace=NAMESPACE, objects=objects)
        published.publish(3, 5, 2)
        yield published


@pytest.fixture(scope="module")
def peers_api(kube_api: KubeApi) -> KubeApi:
    """The API server with the resource definitions of KEDA and AIBrix."""
    kube_api.install_crds(CONTRACTS / "keda" / "crd")
    for path in sorted((AIBRIX / "crd").glob("autoscaling*.yaml")):
        directory = kube_api.work_dir / "aibrix-crd"
        directory.mkdir(exist_ok=True)
        (directory / path.name).write_bytes(path.read_bytes())
        kube_api.install_crds(directory)
    return kube_api


def assert_admitted(api: KubeApi, manifest: Mapping[str, Any]) -> None:
    """Assert that the server stores an object with every field: it drops those that a definition does not have."""
    namespaced = {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}
    assert _missing(namespaced, api.apply(namespaced)) == []


def _missing(given: Any, stored: Any, path: str = "") -> list[str]:
    if isinstance(given, Mapping):
        found = [
            _missing(value, stored[key], f"{path}.{key}") if key in stored else [f"{path}.{key}"]
            for key, value in given.items()
        ]
        return [each for some in found for each in some]
    if isinstance(given, list):
        pairs = zip(given, stored, strict=True)
        return [each for index, pair in enumerate(pairs) for each in _missing(*pair, f"{path}[{index}]")]
    return [] if str(given) == str(stored) else [f"{path}: {given} is stored as {stored}"]


def moved(url: str, publisher: Publisher) -> str:
    """The URL of an example at the service of the test."""
    return publisher.server.url + urlsplit(url).path


@needs_contracts
@pytest.mark.parametrize("example", ["keda-metrics-api.yaml", "keda-prometheus.yaml", "aibrix-podautoscaler.yaml"])
def test_our_examples_are_admitted_whole(peers_api: KubeApi, example: str) -> None:
    for manifest in documents(EXAMPLES / example):
        assert_admitted(peers_api, manifest)


@needs_contracts
@pytest.mark.parametrize(
    "sample",
    ["optimizer-kpa", "deepseek-coder-7b-l20-podautoscaler", "deepseek-coder-7b-v100-podautoscaler"],
)
def test_the_page_that_a_sample_of_aibrix_names_has_its_metric(
    peers_api: KubeApi, start_server: StartServer, sqlite_url: str, sample: str
) -> None:
    (manifest,) = documents(AIBRIX / "samples" / f"{sample}.yaml")
    assert_admitted(peers_api, manifest)
    (source,) = manifest["spec"]["metricsSources"]
    server = start_server(sqlite_url, "--no-controller", publish="aibrix", metrics_interval_s="0.1")
    with server.client() as api:
        name, namespace = manifest["spec"]["scaleTargetRef"]["name"], manifest["metadata"]["namespace"]
        published = Publisher.register(server, api, namespace=namespace, objects={"L20": name})
        published.publish(6)
        assert _gauge(published, source) == 6
        published.publish(0)
        wait_for(lambda: _gauge(published, source), (0.0).__eq__, what="a page with the new count")


def test_the_page_that_our_example_for_aibrix_names_has_its_metric(publisher: Publisher) -> None:
    (manifest,) = documents(EXAMPLES / "aibrix-podautoscaler.yaml")
    (source,) = manifest["spec"]["metricsSources"]
    assert _gauge(publisher, source) / float(source["targetValue"]) == 2


def _gauge(publisher: Publisher, source: Mapping[str, str]) -> float:
    """Read as AIBrix does: without a token, the first sample of the family."""
    url = f"{source['protocolType']}://{publisher.address}{source['path']}"
    page = httpx.get(url, trust_env=False).raise_for_status().text
    families = {family.name: family.samples for family in text_string_to_metric_families(page)}
    return float(families[source["targetMetric"]][0].value)


def test_keda_reads_the_json_with_a_token_of_scope_read(publisher: Publisher, gjson: Gjson) -> None:
    _authentication, scaled_object = documents(EXAMPLES / "keda-metrics-api.yaml")
    (trigger,) = scaled_object["spec"]["triggers"]
    url, location = moved(trigger["metadata"]["url"], publisher), trigger["metadata"]["valueLocation"]
    assert trigger["metadata"]["authMode"] == "bearer"
    assert httpx.get(url, trust_env=False).status_code == 401
    made = publisher.client.create_token(TokenRequest(name="keda", scopes=frozenset({TokenScope.READ})))
    headers = {"Authorization": f"Bearer {made.secret}"}

    def body() -> str:
        return httpx.get(url, headers=headers, trust_env=False).raise_for_status().text

    assert gjson.get(body(), location) == "3"
    for part, wanted in ((PREFILL, "3"), (DECODE, "5"), ("L4", "2")):
        assert gjson.get(body(), f'parts.#(part=="{part}").replicas') == wanted
    assert gjson.get(body(), 'parts.#(part=="T4").replicas') is None  # for KEDA an error, not zero


@pytest.mark.prometheus
def test_keda_reads_one_value_from_prometheus_for_two_replicas_of_the_service(
    publisher: Publisher, prometheus: Prometheus
) -> None:
    (scaled_object,) = documents(EXAMPLES / "keda-prometheus.yaml")
    (trigger,) = scaled_object["spec"]["triggers"]
    scrape(prometheus, {"job_name": "api"}, addresses=two_replicas(publisher))
    prometheus.wait_for_samples("count(fleetwright_target_replicas_wanted) == 6")
    (wanted,) = prometheus.query(trigger["metadata"]["query"])
    assert wanted.value / float(trigger["metadata"]["threshold"]) == 5
    assert trigger["metadata"]["ignoreNullValues"] == "false", "by default KEDA reads a missing series as zero"
