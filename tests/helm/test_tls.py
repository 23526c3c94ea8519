"""Tests HTTPS of the API in the chart: probes, certificate, and the processes that call the API."""

import base64
import json

import kubernetes_validate
import pytest

from tests.helm import test_fault_monitor, test_guard, test_remediation
from tests.helm.chart import Object, container, environment, one, render
from tests.helm.test_templates import KUBERNETES_VERSIONS
from tests.testbed.helm import Helm

TLS = (
    *("--set", "api.tls.existingSecret=certificate", "--set", "monitoring.serviceMonitor.enabled=true"),
    *(*test_guard.ON, *test_guard.FETCHING),
    *(*test_fault_monitor.ON, *test_fault_monitor.REPORTING),
    *test_remediation.ON,
)
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
CALLERS = ("-controller", "-guard-row-a", "-fault-monitor-llm-7b", "-remediation-train")


@pytest.fixture(scope="module")
def objects(helm3: Helm) -> list[Object]:
    return render(helm3, *TLS)


def test_probes_use_https_only_with_a_certificate(helm3: Helm, objects: list[Object]) -> None:
    secured = container(one(objects, "Deployment", "-api"))
    plain = container(one(render(helm3), "Deployment", "-api"))
    assert [secured[probe]["httpGet"].get("scheme") for probe in PROBES] == ["HTTPS"] * 3
    assert [plain[probe]["httpGet"].get("scheme") for probe in PROBES] == [None] * 3


def test_the_api_reads_the_mounted_certificate(objects: list[Object]) -> None:
    api = one(objects, "Deployment", "-api")
    (mount,) = (mount for mount in container(api)["volumeMounts"] if mount["name"] == "tls")
    (volume,) = (volume for volume in api["spec"]["template"]["spec"]["volumes"] if volume["name"] == "tls")
    assert environment(api)["FLEETWRIGHT_TLS_CERT_FILE"] == f"{mount['mountPath']}/tls.crt"
    assert environment(api)["FLEETWRIGHT_TLS_KEY_FILE"] == f"{mount['mountPath']}/tls.key"
    assert volume["secret"]["secretName"] == "certificate"


@pytest.mark.parametrize("name", CALLERS)
def test_every_caller_uses_https_and_trusts_the_authority(objects: list[Object], name: str) -> None:
    caller = one(objects, "Deployment", name)
    (mount,) = (mount for mount in container(caller)["volumeMounts"] if mount["name"] == "api-ca")
    (volume,) = (volume for volume in caller["spec"]["template"]["spec"]["volumes"] if volume["name"] == "api-ca")
    assert environment(caller)["SSL_CERT_FILE"] == f"{mount['mountPath']}/ca.crt"
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}], "the key of the API stays with the API"


def test_no_url_of_the_api_is_plain_http(objects: list[Object]) -> None:
    guard_file = base64.b64decode(one(objects, "Secret", "-guard-row-a")["data"]["guard.json"]).decode()
    text = json.dumps(objects) + guard_file
    assert "http://demo-fleetwright-api" not in text
    assert text.count("https://demo-fleetwright-api") >= len(CALLERS) + 1  # and the test of the release


def test_the_scrape_trusts_the_authority(objects: list[Object]) -> None:
    (endpoint,) = one(objects, "ServiceMonitor", "-api")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] == "demo-fleetwright-api"


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_object_is_valid_for_kubernetes(objects: list[Object], version: str) -> None:
    for item in objects:
        if not item["apiVersion"].startswith("monitoring.coreos.com"):
            assert kubernetes_validate.validate(item, version, strict=True) == version
