"""Tests external APIs, discovery of agents, the router, certificates, egress rules, and absent values."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from api.cli.app import app
from deploy.router.process import RouterFile
from fleet.documents import parse_document, read_model
from tests.helm.chart import CHART, Object, container, environment, kinds, one, render
from tests.helm.test_guard import guard_file
from tests.testbed.helm import Helm

AGENTS = {"existingSecret": "agents"}
ROW: dict[str, Any] = {"config": {"settings": {"rating_w": 9000}}, "agentToken": AGENTS}
WITH_AGENTS: dict[str, Any] = {"agent": {"enabled": True, "token": AGENTS}, "powerGuards": {"row-a": ROW}}
URL = "https://fleet.example.com"
ELSEWHERE: dict[str, Any] = {
    "api": {"enabled": False},
    "externalApi": {"url": URL, "tokenSecret": {"name": "token"}, "caSecret": {"name": "authority"}},
}
ROUTER = {
    "enabled": True,
    "config": {
        "engines": {
            "a": ["http://engine.ml.svc:8000", "http://10.0.0.1:8001"],
            "b": {"namespace": "chat", "selector": "app=b"},
        }
    },
    "table": {"configMap": "table"},
}
HEALTH_EVENTS = {
    "enabled": True,
    "act": True,
    "kubernetes": {"enabled": True},
    "webhook": {"url": "https://hooks.example.com/x", "existingSecret": "hooks"},
}
OPERATOR = ["--api-versions", "monitoring.coreos.com/v1/PodMonitor"]
RULES = ["--api-versions", "monitoring.coreos.com/v1/PrometheusRule"]


@pytest.fixture
def rendered(helm3: Helm, tmp_path: Path) -> Any:
    def rendering(values: dict[str, Any], *arguments: str) -> list[Object]:
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        return render(helm3, "--values", path, *arguments)

    return rendering


def policy_of(objects: list[Object], ending: str) -> list[Object]:
    return list(one(objects, "NetworkPolicy", ending)["spec"]["egress"])


def namespaces_in(rules: list[Object]) -> set[str]:
    peers = [peer for rule in rules for peer in rule.get("to", [])]
    selectors = [peer["namespaceSelector"]["matchLabels"] for peer in peers if "namespaceSelector" in peer]
    return {labels["kubernetes.io/metadata.name"] for labels in selectors}


def ports_in(rules: list[Object]) -> set[int]:
    return {port["port"] for rule in rules for port in rule.get("ports", [])}


class TestExternalApi:
    def test_nothing_of_an_api_is_left(self, rendered: Any) -> None:
        objects = rendered(ELSEWHERE | {"controller": {"enabled": False}} | WITH_AGENTS)
        names = {item["metadata"]["name"] for item in objects}
        assert not [name for name in names if "-api" in name or "data" in name or "dashboards" in name]
        assert [item["metadata"]["name"] for item in objects if item["kind"] == "Secret"] == [
            "demo-fleetwright-guard-row-a"
        ]

    def test_every_caller_has_its_url_token_and_authority(self, rendered: Any) -> None:
        objects = rendered(ELSEWHERE | WITH_AGENTS)
        controller = one(objects, "Deployment", "-controller")
        assert URL in container(controller)["args"]
        source = guard_file(objects).budgets_from
        assert source is not None
        assert source.url == URL
        for workload, volume in ((controller, "token"), (one(objects, "Deployment", "-guard-row-a"), "api-token")):
            volumes = {each["name"]: each for each in workload["spec"]["template"]["spec"]["volumes"]}
            assert volumes[volume]["secret"]["secretName"] == "token"
            assert volumes["api-ca"]["secret"]["secretName"] == "authority"
            assert environment(workload)["SSL_CERT_FILE"] == "/etc/fleetwright/api-ca/ca.crt"
        assert 443 in ports_in(policy_of(objects, "-controller"))

    def test_helm_test_reads_its_readiness(self, rendered: Any) -> None:
        job = one(rendered(ELSEWHERE), "Job", "-test-readiness")
        assert container(job)["args"][-1] == f"{URL}/readyz"


class TestDiscovery:
    def test_a_guard_finds_the_agents_of_its_row_by_their_headless_service(self, rendered: Any) -> None:
        rows = {"row-a": {"nodeSelector": {"row": "a"}}}
        cases: list[tuple[dict[str, Any], str]] = [
            ({}, "demo-fleetwright-agent"),
            ({"rows": rows}, "demo-fleetwright-agent-row-a"),
        ]
        for values, expected in cases:
            agent = WITH_AGENTS["agent"] | values | {"port": 9500}
            objects = rendered(WITH_AGENTS | {"agent": agent})
            discover = guard_file(objects).discover
            assert discover is not None
            assert (discover.service, discover.port) == (f"{expected}.fleet.svc", 9500)
            service = one(objects, "Service", expected)
            assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
            labels = one(objects, "DaemonSet", expected)["spec"]["template"]["metadata"]["labels"]
            assert service["spec"]["selector"].items() <= labels.items()
            assert 9500 in ports_in(policy_of(objects, "-guard-row-a"))
            assert "Role" not in kinds(objects)

    def test_each_row_has_agents_on_its_own_nodes(self, rendered: Any) -> None:
        rows = {name: {"nodeSelector": {"row": name}} for name in ("row-a", "row-b")}
        agent = WITH_AGENTS["agent"] | {"rows": rows, "nodeSelector": {"gpu": "true"}}
        objects = rendered(WITH_AGENTS | {"agent": agent})
        sets = [item["spec"]["template"]["spec"]["nodeSelector"] for item in objects if item["kind"] == "DaemonSet"]
        assert sets == [{"gpu": "true", "row": "row-a"}, {"gpu": "true", "row": "row-b"}]


class TestRouter:
    def test_its_file_and_arguments_are_valid(self, rendered: Any) -> None:
        objects = rendered({"router": ROUTER})
        text = one(objects, "ConfigMap", "-router")["data"]["router.json"]
        file = read_model(parse_document(text, name="router.json"), RouterFile)
        router = container(one(objects, "Deployment", "-router"))
        assert file.table_file.parent in {Path(mount["mountPath"]) for mount in router["volumeMounts"]}
        done = CliRunner().invoke(app, [*router["args"], "--help"])
        assert done.exit_code == 0, done.output
        assert one(objects, "Service", "-router")["spec"]["ports"][0]["targetPort"] == "http"

    def test_it_reaches_its_engines_and_lists_only_their_pods(self, rendered: Any) -> None:
        objects = rendered({"router": ROUTER})
        rules = policy_of(objects, "-router")
        assert namespaces_in(rules) == {"ml", "chat"}
        assert ports_in(rules) == {53, 443, 6443, 8000, 8001}
        role = one(objects, "Role", "-router")
        assert (role["metadata"]["namespace"], role["rules"]) == (
            "chat",
            [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        )


def test_the_forwarder_of_health_events_has_valid_arguments_and_lists_nodes(rendered: Any) -> None:
    objects = rendered({"healthEvents": HEALTH_EVENTS})
    arguments = container(one(objects, "Deployment", "-health-events"))["args"]
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0, done.output
    assert one(objects, "ClusterRole", "-health-events")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    ]


class TestCertificates:
    @pytest.mark.parametrize("name", ["guard-row-a", "fault-monitor-llm", "router"])
    def test_every_server_uses_its_certificate(self, rendered: Any, name: str) -> None:
        values = WITH_AGENTS | {
            "certManager": {"enabled": True, "issuerRef": {"name": "issuer"}},
            "faultMonitors": {"llm": {"job": {"nodes": 2}, "recorderToken": {"existingSecret": "recorders"}}},
            "router": ROUTER,
        }
        objects = rendered(values)
        certificate = one(objects, "Certificate", f"-{name}")["spec"]
        workload = one(objects, "Deployment", f"-{name}")
        arguments = container(workload)["args"]
        assert "/etc/fleetwright/tls/tls.crt" in arguments
        done = CliRunner().invoke(app, [*arguments, "--help"])
        assert done.exit_code == 0, done.output
        secrets = [
            each["secret"]["secretName"] for each in workload["spec"]["template"]["spec"]["volumes"] if "secret" in each
        ]
        assert certificate["secretName"] in secrets
        assert one(objects, "Service", f"-{name}")["metadata"]["name"] in certificate["dnsNames"]
        assert {item["metadata"]["name"] for item in objects if item["kind"] == "Certificate"} >= {
            "demo-fleetwright-api",
            "demo-fleetwright-agent",
        }

    def test_guard_and_agents_verify_each_other(self, rendered: Any) -> None:
        objects = rendered(WITH_AGENTS | {"certManager": {"enabled": True, "issuerRef": {"name": "issuer"}}})
        file = guard_file(objects)
        assert file.discover is not None
        assert (file.discover.scheme, file.agent_tls is not None) == ("https", True)
        for name in ("-agent", "-guard-row-a"):
            assert "client auth" in one(objects, "Certificate", name)["spec"]["usages"]
        assert file.discover.service in one(objects, "Certificate", "-agent")["spec"]["dnsNames"]


def test_urls_become_egress_rules(rendered: Any) -> None:
    urls = ["http://prometheus.monitoring.svc:9090", "https://meters.example.com", "http://10.1.2.3:9999/x"]
    rules = policy_of(rendered({"controller": {"urls": urls}}), "-controller")
    assert namespaces_in(rules) == {"monitoring"}
    assert ports_in(rules) == {53, 443, 8265, 8400, 9999}


class TestMonitoring:
    def test_monitors_and_rules_are_on_where_the_crds_are(self, rendered: Any) -> None:
        assert {"ServiceMonitor", "PodMonitor"} <= kinds(rendered({}, *OPERATOR))
        assert "PrometheusRule" in kinds(rendered({}, *RULES))

    def test_an_explicit_switch_wins(self, rendered: Any) -> None:
        off = {"serviceMonitor": {"enabled": False}, "prometheusRule": {"enabled": False}}
        assert not {"PodMonitor", "PrometheusRule"} & kinds(rendered({"monitoring": off}, *OPERATOR, *RULES))

    def test_rules_and_dashboards_are_rendered_once(self, rendered: Any) -> None:
        objects = rendered(ELSEWHERE, *OPERATOR, *RULES)
        assert not {"PrometheusRule", "ConfigMap"} & kinds(objects)
        assert "PodMonitor" in kinds(objects)


def test_volumes_bundles_and_objects_can_be_added(rendered: Any) -> None:
    extra = {
        "caBundle": {"configMap": "bundle"},
        "controller": {
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        },
        "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}],
    }
    objects = rendered(extra)
    controller = one(objects, "Deployment", "-controller")
    mounts = {each["name"]: each["mountPath"] for each in container(controller)["volumeMounts"]}
    assert (mounts["more"], mounts["ca-bundle"]) == ("/more", "/etc/fleetwright/ca-bundle")
    assert environment(controller)["SSL_CERT_FILE"] == "/etc/fleetwright/ca-bundle/ca.crt"
    assert one(objects, "ConfigMap", "-more")["metadata"]["name"] == "demo-more"


def test_absent_values_have_the_defaults_of_the_chart(helm3: Helm, tmp_path: Path) -> None:
    """As after --reuse-values from a chart that had none of them."""
    stripped = tmp_path / "chart"
    for path in (path for path in CHART.rglob("*") if path.is_file()):
        copy = stripped / path.relative_to(CHART)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (stripped / "values.yaml").write_text("worker: {resources: {limits: {memory: 6Gi}}}\n")
    fixed = ["--set", "auth.bootstrapToken.existingSecret=tokens"]
    given = ["--set", "worker.resources.requests=null,worker.resources.limits.memory=6Gi"]
    found = list(yaml.safe_load_all(helm3.run("template", "demo", stripped, "--namespace", "fleet", *fixed)))
    assert [item for item in found if item] == render(helm3, *fixed, *given)


def test_the_documented_rows_each_have_agents_and_a_guard(rendered: Any) -> None:
    page = (CHART.parents[1] / "docs" / "how-to" / "guard-rows-on-kubernetes.md").read_text()
    values = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    names = {item["metadata"]["name"] for item in rendered(values) if item["kind"] in {"DaemonSet", "Deployment"}}
    assert names == {f"demo-fleetwright-{kind}-{row}" for kind in ("agent", "guard") for row in ("row-a", "row-b")}
