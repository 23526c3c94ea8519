"""Runs `fleetwright remediate kubernetes` against real API servers: the service, least rights, and a log of cordons."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubernetes import client, watch

from api.client import Client
from api.schemas.faults import DiagnosisReport
from api.schemas.remediation import CaseSpec
from deploy.common.kubernetes_node_marks import QUARANTINE, SENTINEL_EVENT
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.quarantine import DisruptionBudget, PolicyMode, QuarantineRules
from tests.testbed.gpu_nodes import POOL_LABEL, GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.processes import Process
from tests.testbed.server import ADMIN_TOKEN, ROOT, running_servers
from tests.testbed.waiting import wait_for

ANY: Final = DisruptionBudget(share=1.0, count=100_000)
AT_ONCE: Final = QuarantineRules(  # without hold times, and without the guardrails of the fleet
    mode=PolicyMode.APPLY,
    pool=ANY,
    domain=ANY,
    rate_count=1_000_000,
    breaker_nodes=1_000_000,
    without_spare=True,
    cooldown_s=0.0,
    probation_s=0.0,
)
LEAST: Final = (  # of `remediate kubernetes --act`
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
)
EVENTS: Final = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}  # in the namespace `default`


@dataclass
class NodeSite:
    """Holds the service, the nodes of one test, and an account with the rights of the controller."""

    client: Client
    url: str
    nodes: GpuNodes
    kubeconfig: Path
    folder: Path
    controllers: int = field(default=0)

    def apply(self, rules: QuarantineRules) -> None:
        self.client.replace_quarantine_rules(rules, if_match=self.client.get_quarantine_rules().etag)

    def suspect(self, node: str) -> str:
        """Report a diagnosis that justifies a quarantine of the node; return its id."""
        diagnosis = Diagnosis(
            fault=FaultClass.NONCOMM_HANG,
            scope=Scope.RANK,
            node=1,
            onset_s=1.0,
            detected_s=2.0,
            isolate=True,
            confidence=0.99,
            reason="stopped",
            evidence=("process", "standstill"),
        )
        report = DiagnosisReport(job=f"job-of-{node}", diagnosis=diagnosis, nodes={"1": node}, expires_in_s=3600.0)
        return self.client.report_diagnosis(report).id

    def start(self, *options: str, kube: Path | None = None, url: str | None = None, lease_s: float = 5.0) -> Process:
        """Start a controller; the caller ends it."""
        self.controllers += 1
        argv: list[str | Path] = [sys.executable, "-m", "api.cli", "remediate", "kubernetes", "--metrics-port", "0"]
        argv += ["--kubeconfig", kube or self.kubeconfig, "--nodes", f"{POOL_LABEL}={self.nodes.pool}"]
        argv += ["--url", url or self.url, "--token-file", self.folder / "token"]
        argv += ["--period-s", "0.1", "--lease-s", str(lease_s), *options]
        return Process.start(
            argv,
            name=f"remediation-{self.controllers}",
            log_dir=self.folder,
            env={"PATH": os.environ["PATH"]},
            cwd=ROOT,
        )

    @contextmanager
    def controller(self, *options: str, **more: Any) -> Iterator[Process]:
        with self.start(*options, **more) as process:
            yield process

    def cases(self) -> Mapping[str, CaseSpec]:
        """Return the cases by node."""
        return {each.case.node: each.case for each in self.client.iter_remediation_cases()}

    def case(self, node: str, wanted: Any, *, what: str) -> CaseSpec:
        """Wait for a case of the node that is `wanted`."""
        found = wait_for(
            lambda: self.cases().get(node),
            lambda case: case is not None and wanted(case),
            what=f"case of {node}: {what}",
        )
        assert found is not None
        return found

    def node(self, name: str) -> Any:
        return self.nodes.core.read_node(name)

    def marks(self, name: str) -> dict[str, Any]:
        """Return what the controller may change on a node, and what it must not."""
        node = self.node(name)
        own = {"node.kubernetes.io/unschedulable"}  # of the control plane: follows the cordon
        return {
            "cordoned": bool(node.spec.unschedulable),
            "taints": sorted((each.key, each.value) for each in node.spec.taints or [] if each.key not in own),
            "annotations": {QUARANTINE, SENTINEL_EVENT} & set(node.metadata.annotations or {}),
            "conditions": {
                each.type: (each.status, each.message)
                for each in node.status.conditions
                if each.type in {"FleetwrightHealthy", "KernelDeadlock"}
            },
        }

    def events(self, name: str) -> list[str]:
        """Return the reasons of our events of the node."""
        found = self.nodes.core.list_namespaced_event("default", field_selector=f"involvedObject.name={name}")
        return sorted(each.reason for each in found.items if each.source.component == "fleetwright")


@contextmanager
def node_site(kube_api: KubeApi, nodes: GpuNodes, folder: Path) -> Iterator[NodeSite]:
    with ExitStack() as stack:
        server = stack.enter_context(running_servers(folder))(
            f"sqlite+aiosqlite:///{folder}/fleetwright.db", "--no-controller"
        )
        service = stack.enter_context(Client(server.url, token=ADMIN_TOKEN))
        kubeconfig = stack.enter_context(account_with_rights(kube_api, nodes.pool))
        yield NodeSite(client=service, url=server.url, nodes=nodes, kubeconfig=kubeconfig, folder=folder)


@contextmanager
def account_with_rights(kube_api: KubeApi, name: str) -> Iterator[Path]:
    """Yield the kubeconfig of an account that has the rights of the controller, and no more."""
    account = {"kind": "ServiceAccount", "namespace": "default", "name": name}
    group = "rbac.authorization.k8s.io"
    for kind, rules, where in (("ClusterRole", list(LEAST), {}), ("Role", [EVENTS], {"namespace": "default"})):
        role = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name, **where}, "rules": rules}
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": {"name": name, **where},
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [account],
        }
        for manifest in (role, binding):
            kube_api.apply(manifest)
    kube_api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "default", "name": name}})
    yield kube_api.service_account_kubeconfig(namespace="default", name=name)
    with kube_api.connect() as api:
        rbac = client.RbacAuthorizationV1Api(api)
        rbac.delete_cluster_role_binding(name)
        rbac.delete_cluster_role(name)


@dataclass
class CordonLog:
    """Counts the nodes that are cordoned at once, by a watch: every write of a node is in it, in order."""

    nodes: GpuNodes
    max_at_once: int = 0
    cordoned: set[str] = field(default_factory=set)
    ever: set[str] = field(default_factory=set)  # quarantined by us
    writes: int = 0
    thread: threading.Thread | None = None

    def record(self, api: client.ApiClient, since: str) -> None:
        core, selector = client.CoreV1Api(api), f"{POOL_LABEL}={self.nodes.pool}"
        stream = watch.Watch().stream(core.list_node, label_selector=selector, resource_version=since)
        for event in stream:
            metadata, spec = event["raw_object"]["metadata"], event["raw_object"].get("spec") or {}
            annotations = metadata.get("annotations") or {}
            if "testbed.fleetwright/end" in annotations:
                return
            self.writes += any(each["manager"] == "fleetwright" for each in metadata.get("managedFields", ()))
            (self.cordoned.add if spec.get("unschedulable") else self.cordoned.discard)(metadata["name"])
            if QUARANTINE in annotations:
                self.ever.add(metadata["name"])
            self.max_at_once = max(self.max_at_once, len(self.cordoned))


@contextmanager
def cordon_log(kube_api: KubeApi, nodes: GpuNodes) -> Iterator[CordonLog]:
    """Record until the block ends, and every write before its end."""
    log = CordonLog(nodes=nodes)
    with kube_api.connect() as api:
        since = client.CoreV1Api(api).list_node(limit=1).metadata.resource_version
        log.thread = threading.Thread(target=log.record, args=(api, since), daemon=True)
        log.thread.start()
        yield log
        nodes.core.patch_node(nodes.names()[0], {"metadata": {"annotations": {"testbed.fleetwright/end": "1"}}})
        log.thread.join()


def kill(process: Process) -> None:
    """End a process without a shutdown, as a power cut does."""
    os.kill(process.pid, signal.SIGKILL)
    process.popen.wait()
