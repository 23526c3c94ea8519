"""Tests the agent in the chart: off by default, unprivileged in observe mode, root in act mode."""

import json
from itertools import pairwise

import kubernetes_validate
import pytest
from typer.testing import CliRunner

from api.cli.app import app
from tests.helm.chart import POSTGRES, Object, container, environment, kinds, one, render
from tests.helm.test_guard import ON as GUARD
from tests.helm.test_guard import guard_file
from tests.helm.test_templates import KUBERNETES_VERSIONS, PROMETHEUS_OPERATOR
from tests.testbed.helm import Helm, HelmError

ON = ["--set", "agent.enabled=true,agent.token.existingSecret=agents,agent.token.key=own"]
ACT = [*ON, "--set", "agent.act=true"]
TLS = ["--set", "agent.enabled=true,agent.tls.existingSecret=agent-tls"]
HERE: Object = {"podSelector": {}}
WORKERS: Object = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ml"}}}


def agent(objects: list[Object]) -> Object:
    return one(objects, "DaemonSet", "-agent")


def pod(objects: list[Object]) -> Object:
    return dict(agent(objects)["spec"]["template"]["spec"])


def options(objects: list[Object]) -> dict[str, str]:
    """Return the options that have a value."""
    arguments = container(agent(objects))["args"]
    return {name: value for name, value in pairwise(arguments) if name.startswith("--")}


def mounted(objects: list[Object], path: str) -> Object:
    """Return the volume that is mounted at a path."""
    (name,) = (each["name"] for each in container(agent(objects))["volumeMounts"] if each["mountPath"] == path)
    (found,) = (volume for volume in pod(objects)["volumes"] if volume["name"] == name)
    return dict(found)


def test_the_agent_is_off_by_default(helm3: Helm) -> None:
    assert "DaemonSet" not in kinds(render(helm3))


@pytest.mark.parametrize("more", [ON, ACT, TLS, [*ACT, "--set", "agent.extraArgs={--safe-token,0.8}"]])
def test_the_command_line_accepts_every_argument(helm3: Helm, more: list[str]) -> None:
    arguments = container(agent(render(helm3, *more)))["args"]
    assert arguments[:2] == ["agent", "$(NODE_NAME)"]
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0, done.output


def test_the_agent_is_named_after_its_node(helm3: Helm) -> None:
    assert environment(agent(render(helm3, *ON)))["NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_in_observe_mode_the_agent_has_no_privileges_on_its_node(helm3: Helm) -> None:
    objects = render(helm3, *ON)
    agent_container, spec = container(agent(objects)), pod(objects)
    assert "--observe" in agent_container["args"]
    assert "--act" not in agent_container["args"]
    assert agent_container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert {kind for volume in spec["volumes"] for kind in volume} == {"name", "secret", "emptyDir"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert environment(agent(objects))["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


def test_in_act_mode_the_agent_is_root_and_its_state_outlives_the_pod(helm3: Helm) -> None:
    objects = render(helm3, *ACT)
    agent_container = container(agent(objects))
    assert "--act" in agent_container["args"]
    context = agent_container["securityContext"]
    assert (context["privileged"], context["runAsUser"]) == (True, 0)
    folder, _, _name = options(objects)["--state-file"].rpartition("/")
    assert mounted(objects, folder)["hostPath"] == {"path": "/var/lib/fleetwright", "type": "DirectoryOrCreate"}
    assert pod(objects)["terminationGracePeriodSeconds"] >= 30
    assert mounted(render(helm3, *ACT, "--set", "agent.state.hostPath="), folder)["emptyDir"] == {}


def test_a_simulated_agent_is_never_privileged(helm3: Helm) -> None:
    objects = render(helm3, *ACT, "--set", "agent.device=simulated")
    assert "privileged" not in container(agent(objects))["securityContext"]
    assert not [volume for volume in pod(objects)["volumes"] if "hostPath" in volume]


def test_secrets_are_mounted_at_the_paths_of_the_arguments(helm3: Helm) -> None:
    objects = render(helm3, *ON, "--set", "agent.tls.existingSecret=agent-tls")
    flags = options(objects)
    token, tls = (mounted(objects, f"/etc/fleetwright/{name}")["secret"] for name in ("token", "tls"))
    assert (token["secretName"], token["items"]) == ("agents", [{"key": "own", "path": "token"}])
    assert flags["--token-file"] == "/etc/fleetwright/token/token"
    assert tls["secretName"] == "agent-tls"
    files = {flags[name] for name in ("--tls-cert", "--tls-key", "--client-ca")}
    assert files == {f"/etc/fleetwright/tls/{name}" for name in ("tls.crt", "tls.key", "ca.crt")}


def test_updates_replace_one_agent_at_a_time(helm3: Helm) -> None:
    strategy = agent(render(helm3, *ON))["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}


def test_the_agent_is_reachable_at_the_address_of_its_node(helm3: Helm) -> None:
    peers = ["--set-json", f"networkPolicy.agentFrom={json.dumps([WORKERS])}", "--set", "agent.port=9500"]
    objects = render(helm3, *ON, *peers)
    (port,) = container(agent(objects))["ports"]
    assert (port["containerPort"], port["hostPort"], options(objects)["--port"]) == (9500, 9500, "9500")
    policy = one(objects, "NetworkPolicy", "-agent")["spec"]
    assert policy["ingress"] == [{"from": [HERE, WORKERS], "ports": [{"protocol": "TCP", "port": 9500}]}]
    assert {each["port"] for rule in policy["egress"] for each in rule["ports"]} == {53}
    host = render(helm3, *ON, "--set", "agent.network=host")
    assert pod(host)["hostNetwork"] is True
    assert not [
        item for item in host if item["kind"] == "NetworkPolicy" and item["metadata"]["name"].endswith("-agent")
    ]


def test_prometheus_scrapes_agents_over_tls_with_their_token(helm3: Helm) -> None:
    on = [*ON, "--set", "agent.tls.existingSecret=agent-tls,agent.tls.serverName=agents.internal"]
    objects = render(helm3, *on, "--set", "monitoring.serviceMonitor.enabled=true")
    monitor = one(objects, "PodMonitor", "-agent")["spec"]
    labels = agent(objects)["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert [endpoint["port"]] == [each["name"] for each in container(agent(objects))["ports"]]
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": {"name": "agents", "key": "own"}}
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["keySecret"] == {"name": "agent-tls", "key": "tls.key"}
    assert endpoint["tlsConfig"]["serverName"] == "agents.internal"
    assert "authorization" not in one(objects, "PodMonitor", "-controller")["spec"]["podMetricsEndpoints"][0]


def test_the_guard_of_the_release_presents_a_certificate_to_agents(helm3: Helm) -> None:
    row = ["--set-json", 'powerGuards.row-a.config.agents=[{"name": "n1", "url": "https://n1.invalid:9403"}]']
    objects = render(helm3, *GUARD, *row, *TLS, "--set", "powerGuards.row-a.agentTls.existingSecret=guard-tls")
    tls = guard_file(objects).agent_tls
    assert tls is not None
    (mount,) = (
        m for m in container(one(objects, "Deployment", "-guard-row-a"))["volumeMounts"] if m["name"] == "agent-tls"
    )
    assert {path.parent.as_posix() for path in (tls.authority, tls.certificate, tls.key)} == {mount["mountPath"]}


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("values", [ON, ACT, [*TLS, "--set", "agent.network=host"]])
def test_the_objects_of_the_agent_are_valid(helm3: Helm, version: str, values: list[str]) -> None:
    objects = [item for item in render(helm3, *values, profile=POSTGRES) if item["metadata"]["name"].endswith("-agent")]
    assert {"DaemonSet", "PodMonitor", "ServiceAccount"} <= kinds(objects)
    for item in (item for item in objects if item["apiVersion"] != PROMETHEUS_OPERATOR):
        assert kubernetes_validate.validate(item, version, strict=True) == version


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--set", "agent.enabled=true"], "agent.token.existingSecret and agent.tls.existingSecret are empty"),
        ([*ACT, "--set", "agent.terminationGracePeriodSeconds=29"], "is 29: allowed with agent.act are 30 to 3600"),
        ([*ON, *GUARD], "powerGuards.row-a.agentToken.existingSecret is empty"),
        ([*TLS, *GUARD], "powerGuards.row-a.agentTls.existingSecret is empty"),
        ([*ON, "--set", "agent.device=redfish"], "device"),
        ([*ON, "--set", "agent.network=pod"], "network"),
        ([*ON, "--set", "agent.state.hostPath=var/lib"], "hostPath"),
        ([*ON, "--set", "agent.updateStrategy.maxUnavailable=0"], "maxUnavailable"),
        ([*ON, "--set", "agent.extraEnv[0].name=FLEETWRIGHT_LOG_LEVEL"], "agent.extraEnv sets FLEETWRIGHT_LOG_LEVEL"),
    ],
)
def test_inconsistent_values_are_refused(helm: Helm, given: list[str], message: str) -> None:
    with pytest.raises(HelmError, match=message):
        render(helm, *given)


def test_the_minimum_grace_period_applies_only_in_act_mode(helm3: Helm) -> None:
    assert agent(render(helm3, *ON, "--set", "agent.terminationGracePeriodSeconds=5"))
