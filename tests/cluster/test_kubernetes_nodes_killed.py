"""A quarantine on a real API server is completed whichever write was the last one of a killed controller.

Every controller reaches both servers through a gate that holds one write; the controller is killed there, and a standby
that runs since before continues.  The standby is the next test's victim.  At the end another API server on the same
etcd is killed and started again in mid-action.
"""

import itertools
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from api.schemas.remediation import RemediationStage
from faults.quarantine import NodeState
from tests.testbed.control_plane import second_api_server
from tests.testbed.gate import Gate, Hold, running_gate
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.manifests import pod_spec
from tests.testbed.processes import Process
from tests.testbed.remediated_nodes import AT_ONCE, NodeSite, kill, node_site
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.kubernetes

LEASE_S = 3.0
CASE, EVENT, EVICTION = r"(POST|PUT) .*/v1/faults/cases/.*", "POST .*/events", "POST .*/eviction"
NODE, STATUS = r"PATCH .*/nodes/[^/]+", r"PATCH .*/nodes/[^/]+/status"
STEPS = {  # the writes up to the one that is not done
    "open": (CASE,),
    "cordon": (NODE,),
    "condition": (STATUS,),
    "event": (EVENT,),
    "cordon-stored": (EVENT, CASE),
    "evicting": (EVENT, EVENT),
    "eviction": (EVICTION,),
    "eviction-stored": (EVICTION, CASE),
    "healthy": (STATUS, STATUS),
    "released": (EVENT, EVENT, EVENT),
    "uncordon": (NODE, NODE),
    "uncordon-stored": (NODE, NODE, CASE),
    "closed": (NODE, NODE, CASE, CASE),
}
DEADLOCK = {"type": "KernelDeadlock", "status": "True", "reason": "TaskHung", "message": "task hung"}
FOREIGN = {"key": "example.com/keep", "value": "1", "effect": "NoSchedule"}


@dataclass(slots=True)
class AtStep(Hold):
    """Holds the last of several writes that arrive in this order; others may arrive between them."""

    steps: tuple[str, ...] = ()

    def is_hit_by(self, method: str, path: str) -> bool:
        if self.matches >= len(self.steps) or re.fullmatch(self.steps[self.matches], f"{method} {path}") is None:
            return False
        self.matches += 1
        return self.matches == len(self.steps)


@dataclass
class Relay:
    """A leading controller and a standby, each behind names of its own at the gate."""

    site: NodeSite
    gate: Gate
    kube_url: str
    stack: ExitStack
    numbers: Iterator[int] = field(default_factory=itertools.count)
    running: list[tuple[int, Process]] = field(default_factory=list)

    def start(self) -> None:
        number = next(self.numbers)
        self.gate.behind |= {f"api-{number}": self.site.url, f"kube-{number}": self.kube_url}
        described = yaml.safe_load(self.site.kubeconfig.read_text())
        described["clusters"][0]["cluster"] = {"server": f"{self.gate.url}/kube-{number}"}
        kubeconfig = self.site.folder / f"kube-{number}.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(described))
        process = self.site.start(
            "--act", "--hook", "probe=true", kube=kubeconfig, url=f"{self.gate.url}/api-{number}", lease_s=LEASE_S
        )
        self.stack.callback(process.stop)
        self.running.append((number, process))

    def wait_for_leader(self) -> None:
        """Wait until one of them reconciles, and put it first."""
        begun = len(self.gate.passed)

        def leading() -> list[int]:
            paths = {each.path for each in self.gate.passed[begun:]}
            return [number for number, _ in self.running if f"/api-{number}/v1/faults/quarantine/evaluations" in paths]

        (leader,) = wait_for(leading, what="reconcile of a remediation controller")
        self.running.sort(key=lambda each: each[0] != leader)

    def kill_leader(self) -> None:
        _number, process = self.running.pop(0)
        kill(process)
        self.start()


@pytest.fixture(scope="module")
def relay(kube_api: KubeApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    with ExitStack() as stack:
        gate = stack.enter_context(running_gate(ca_path=kube_api.authority.cert_path))
        core = client.CoreV1Api(stack.enter_context(kube_api.connect()))
        nodes = GpuNodes(core=core, pool="relay")
        stack.callback(nodes.remove_all)
        site = stack.enter_context(node_site(kube_api, nodes, tmp_path_factory.mktemp("relay")))
        nodes.add(1)
        site.apply(AT_ONCE)
        relay = Relay(site=site, gate=gate, kube_url=kube_api.url, stack=stack)
        relay.start()
        relay.start()
        yield relay


@pytest.mark.parametrize("step", [None, *STEPS])
def test_a_controller_that_dies_before_any_write_is_continued(
    relay: Relay, kube_namespace: str, step: str | None
) -> None:
    site, core = relay.site, relay.site.nodes.core
    (name,) = site.nodes.add(1)
    core.create_namespaced_pod(kube_namespace, pod_on(name))
    wait_for(lambda: core.read_namespaced_pod("train", kube_namespace).status.phase, "Running".__eq__, what="pod")
    core.patch_node_status(name, {"status": {"conditions": [DEADLOCK]}})
    core.patch_node(name, {"spec": {"taints": [FOREIGN]}})
    relay.wait_for_leader()
    held = AtStep(method="", path="", steps=STEPS.get(step or "", ()))
    if step is not None:
        relay.gate.hold(held)
    site.suspect(name)
    if step is not None:
        held.wait()
        relay.kill_leader()
    case = site.case(name, lambda case: case.state is NodeState.PROBATION, what="released")
    assert site.marks(name) == {
        "cordoned": False,
        "taints": [("example.com/keep", "1")],
        "annotations": set(),
        "conditions": {"FleetwrightHealthy": ("True", "in service"), "KernelDeadlock": ("True", "task hung")},
    }
    assert site.events(name) == ["Evicting", "Quarantined", "Uncordoned"]
    assert case.stage is RemediationStage.REPLACED
    assert {"cordon", "probe", "uncordon"} <= {each.action for each in case.actions}
    wait_for(lambda: core.list_namespaced_pod(kube_namespace).items, lambda left: not left, what="end of the pod")


def pod_on(node: str) -> dict[str, object]:
    spec = pod_spec(gpus=8, nodes={}) | {"nodeName": node, "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}


def test_a_restart_of_the_api_server_in_mid_action_loses_nothing(
    kube_api: KubeApi, gpu_nodes: GpuNodes, tmp_path: Path
) -> None:
    names = gpu_nodes.add(30)
    with second_api_server(kube_api) as second, node_site(kube_api, gpu_nodes, tmp_path) as site:
        described = yaml.safe_load(site.kubeconfig.read_text())
        described["clusters"][0]["cluster"]["server"] = second.url
        kubeconfig = tmp_path / "second.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(described))
        site.apply(AT_ONCE)
        for name in names[:20]:
            site.suspect(name)
        with site.controller("--act", kube=kubeconfig):
            wait_for(lambda: [name for name in names if site.node(name).spec.unschedulable], what="first cordon")
            second.kill()
            second.start()
            out = wait_for(
                site.cases,
                lambda cases: sum(case.stage is RemediationStage.REPLACED for case in cases.values()) == 20,
                what="20 nodes out of service",
            )
    assert {name for name in names if site.marks(name)["cordoned"]} == set(names[:20]) == set(out)
    assert all(site.marks(name)["conditions"]["FleetwrightHealthy"][0] == "False" for name in names[:20])
