"""The power check on the real Kueue: jobs wait for watts of a row, start when watts free up, and stay in the budget."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from api.schemas.power import PowerBudget
from deploy.kueue_power.workloads import CONTROLLER, WATTS, WATTS_PER_GPU
from power.tree import PowerTree
from tests.testbed.control_plane import COMPLETE
from tests.testbed.gpu_nodes import ACCELERATOR_LABEL, POWER_DOMAIN_LABEL, GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.kueue_power_watch import GROUP, VERSION, PowerWatch, has_condition
from tests.testbed.manifests import kueue_queue, queued_job
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.server import ADMIN_TOKEN, Server, running_servers
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("kueue")]

H100 = "NVIDIA-H100-80GB-HBM3"  # 700 W by the catalogue
JOB_GPUS, JOB_W = 4, 2_800
LIMITS_W = {"row-a": 2.0 * JOB_W, "row-b": 1.0 * JOB_W}
RETRY_S, LEASE_S = 1, 2.0
RIGHTS = [
    {"apiGroups": [GROUP], "resources": ["admissionchecks", "resourceflavors", "workloads"], "verbs": ["list"]},
    {"apiGroups": [GROUP], "resources": ["admissionchecks/status", "workloads/status"], "verbs": ["patch"]},
]


@dataclass(frozen=True)
class Bed:
    """A queue with the power check on nodes of two rows, and the API with the rows' power tree."""

    kube_api: KubeApi
    kube_client: client.ApiClient
    namespace: str
    name: str
    server: Server
    start: Callable[..., Process]
    log: PowerWatch

    def submit(
        self,
        *names: str,
        gpus: int = JOB_GPUS,
        longest_s: int | None = None,
        watts: str | None = None,
        row: str | None = None,
    ) -> None:
        for name in names:
            job = queued_job(name, self.namespace, gpus=gpus, queue=self.name)
            job["spec"]["template"]["metadata"] = {"annotations": {} if watts is None else {WATTS_PER_GPU: watts}}
            if row is not None:
                job["spec"]["template"]["spec"]["nodeSelector"] = {POWER_DOMAIN_LABEL: row}
            if longest_s is not None:
                job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = str(longest_s)
            self.kube_api.apply(job)

    def rows_of(self) -> dict[str, str]:
        """Return the row of the nodes that each running pod is on, by job."""
        core = client.CoreV1Api(self.kube_client)
        found = {}
        for pod in core.list_namespaced_pod(self.namespace).items:
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
                node = core.read_node(pod.spec.node_name)
                assert pod.spec.node_selector[POWER_DOMAIN_LABEL] == node.metadata.labels[POWER_DOMAIN_LABEL]
                found[pod.metadata.labels["job-name"]] = node.metadata.labels[POWER_DOMAIN_LABEL]
        return found

    def running(self, count: int) -> dict[str, str]:
        return wait_for(self.rows_of, lambda found: len(found) == count, what=f"{count} running jobs")

    def complete(self, job: str) -> None:
        core = client.CoreV1Api(self.kube_client)
        (pod,) = core.list_namespaced_pod(self.namespace, label_selector=f"job-name={job}").items
        core.patch_namespaced_pod(pod.metadata.name, self.namespace, {"metadata": {"annotations": {COMPLETE: "true"}}})

    def workload(self, job: str) -> dict[str, Any]:
        custom = client.CustomObjectsApi(self.kube_client)
        items = custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, "workloads")["items"]
        owned = [each for each in items if any(owner["name"] == job for owner in each["metadata"]["ownerReferences"])]
        return dict(owned[0]) if owned else {}  # Kueue has not created it yet

    def wait_active(self) -> None:
        custom = client.CustomObjectsApi(self.kube_client)

        def active() -> bool:
            return has_condition(
                custom.get_cluster_custom_object(GROUP, VERSION, "admissionchecks", self.name), "Active"
            )

        wait_for(active, what="an active admission check")

    def reason(self, job: str, text: str) -> str:
        """Wait until a condition of the job's workload has a message with this text, and return the message."""

        def messages() -> list[str]:
            conditions = self.workload(job).get("status", {}).get("conditions", [])
            return [each["message"] for each in conditions if text in each["message"]]

        return wait_for(messages, what=f"a condition of {job} with {text!r}")[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one API for all tests, with the power tree of the rows."""
    folder = tmp_path_factory.mktemp("api")
    feeds = [{"name": "hall", "kind": "pdu", "limit_w": 1e6}]
    feeds += [{"name": row, "kind": "row", "parent": "hall", "limit_w": limit_w} for row, limit_w in LIMITS_W.items()]
    with running_servers(folder) as start:
        running = start(f"sqlite+aiosqlite:///{folder}/fleetwright.db", "--no-controller")
        with running.client() as api:
            api.create_power_tree(PowerTree.model_validate({"name": "hall", "feeds": feeds}))
        yield running


@pytest.fixture
def bed(  # noqa: PLR0917 - fixtures
    kube_api: KubeApi,
    kube_client: client.ApiClient,
    kube_namespace: str,
    gpu_nodes: GpuNodes,
    server: Server,
    tmp_path: Path,
) -> Iterator[Bed]:
    for row in LIMITS_W:
        gpu_nodes.add(2, power_domain=row)
    name = f"power-{kube_namespace}"
    nodes = gpu_nodes.selector | {ACCELERATOR_LABEL: H100}
    flavor, cluster_queue, queue = kueue_queue(name, kube_namespace, gpus=32, nodes=nodes)
    cluster_queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": name}]}
    for manifest in (_admission_check(name), flavor, cluster_queue, queue):
        kube_api.apply(manifest)
    config = tmp_path / "power.yaml"
    config.write_text(
        yaml.safe_dump({"tree": "hall", "rows": list(LIMITS_W), "node_label": POWER_DOMAIN_LABEL, "retry_s": RETRY_S})
    )
    kubeconfig = _account(kube_api, kube_namespace)
    log_client = kube_api.connect()  # of its own, because another thread uses it
    log = PowerWatch(log_client, kube_namespace, tuple(LIMITS_W))
    follower = threading.Thread(target=log.follow)
    follower.start()
    started: list[Process] = []

    def start(*, act: bool = True) -> Process:
        (port,) = free_ports(1)
        argv: list[str | Path] = [
            sys.executable,
            "-m",
            "api.cli",
            "power",
            "admission-check",
            "--config",
            config,
            *(["--act"] if act else []),
        ]
        argv += ["--url", server.url, "--kubeconfig", kubeconfig, "--period-s", "0.3", "--lease-s", str(LEASE_S)]
        argv += ["--metrics-port", str(port)]
        process = Process.start(
            argv,
            name=f"power-check-{len(started)}",
            log_dir=tmp_path,
            env={"PATH": "/usr/bin:/bin", "FLEETWRIGHT_TOKEN": ADMIN_TOKEN},
            cwd=Path(__file__).parents[2],
        )
        started.append(process)
        process.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{port}/healthz"))
        return process

    yield Bed(kube_api, kube_client, kube_namespace, name, server, start, log)
    for process in started:
        process.stop()
    log.stop()
    follower.join()
    log_client.close()
    custom = client.CustomObjectsApi(kube_client)
    for plural in ("clusterqueues", "resourceflavors", "admissionchecks"):
        custom.delete_cluster_custom_object(GROUP, VERSION, plural, name)


def test_jobs_beyond_the_watts_of_the_rows_wait_with_the_reason_and_start_when_watts_free_up(bed: Bed) -> None:
    bed.start()
    bed.submit("a", "b", "c", longest_s=3_600)
    rows = bed.running(3)
    assert sorted(rows.values()) == ["row-a", "row-a", "row-b"]

    bed.submit("d")
    reason = bed.reason("d", "the job needs 2,800 W")
    assert "row row-a: the job needs 2,800 W, 0 of 5,600 W are free; expected by 20" in reason
    assert bed.rows_of().keys() == {"a", "b", "c"}

    finished = min(job for job, row in rows.items() if row == "row-a")
    bed.complete(finished)
    assert wait_for(bed.rows_of, lambda found: "d" in found, what="the waiting job")["d"] == "row-a"
    (pod,) = client.CoreV1Api(bed.kube_client).list_namespaced_pod(bed.namespace, label_selector="job-name=d").items
    assert pod.metadata.annotations[WATTS] == "2800"
    assert bed.log.highest_w() == LIMITS_W


def test_a_killed_power_check_does_not_admit_twice(bed: Bed) -> None:
    names = [f"job-{number}" for number in range(8)]
    done: set[str] = set()
    process = bed.start()
    for batch in (names[:3], names[3:6], names[6:]):
        bed.submit(*batch)
        time.sleep(0.4)  # into the middle of the decisions
        process.popen.kill()
        process.popen.wait()
        process = bed.start()
        running = wait_for(bed.rows_of, lambda found: len(found) >= min(3, 8 - len(done)), what="jobs on the rows")
        for job in running:
            bed.complete(job)
            done.add(job)
        wait_for(bed.rows_of, lambda found: not done & found.keys(), what="completed jobs to leave")
    while done != set(names):
        for job in wait_for(lambda: bed.rows_of().keys() - done, what="the next jobs"):
            bed.complete(job)
            done.add(job)

    for row, limit_w in LIMITS_W.items():
        assert bed.log.highest_w()[row] <= limit_w


def test_a_budget_of_the_api_holds_jobs_and_a_higher_one_starts_them(bed: Bed) -> None:
    expires_at = datetime.now(UTC) + timedelta(hours=1)
    with bed.server.client() as api:
        for row in LIMITS_W:
            api.create_power_budget(row, PowerBudget(limit_w=JOB_W - 1, expires_at=expires_at))
        bed.start()
        bed.submit("a")
        bed.reason("a", "the job needs 2,800 W, 2,799 of 2,799 W are free")

        tag = api.get_power_budget("row-b").etag
        api.replace_power_budget("row-b", PowerBudget(limit_w=JOB_W, expires_at=expires_at), if_match=tag)
        assert bed.running(1) == {"a": "row-b"}
        for row in LIMITS_W:
            api.delete_power_budget(row, if_match=api.get_power_budget(row).etag)


def test_a_job_above_every_rating_is_rejected_and_one_without_known_watts_waits(bed: Bed) -> None:
    bed.start()
    bed.submit("large", gpus=8, watts="701")
    bed.submit("unclear", watts="much")
    bed.submit("light", gpus=8, watts="100")

    bed.reason("large", "the job needs 5,608 W, above the rating of every row that it may use, at most 5,600 W")
    bed.reason("unclear", "annotation fleetwright.io/watts-per-gpu: allowed: 0 to 100,000 W, got 'much'")
    wait_for(lambda: bed.workload("large")["spec"].get("active") is False, what="a deactivated workload")
    assert bed.running(1) == {"light": "row-a"}


def test_an_evicted_job_releases_its_watts(bed: Bed) -> None:
    bed.start()
    bed.submit("a", "b", "c")
    rows = bed.running(3)
    bed.submit("d")
    bed.reason("d", "the job needs 2,800 W")

    (evicted,) = (job for job, row in rows.items() if row == "row-b")
    name = bed.workload(evicted)["metadata"]["name"]
    custom = client.CustomObjectsApi(bed.kube_client)
    custom.patch_namespaced_custom_object(GROUP, VERSION, bed.namespace, "workloads", name, {"spec": {"active": False}})

    after = wait_for(bed.rows_of, lambda found: "d" in found, what="the waiting job")
    assert (after["d"], evicted in after) == ("row-b", False)
    for row, limit_w in LIMITS_W.items():
        assert bed.log.highest_w()[row] <= limit_w


def test_a_small_job_does_not_overtake_a_large_one_on_its_row(bed: Bed) -> None:
    bed.start()
    bed.submit("first")
    assert bed.running(1) == {"first": "row-a"}
    bed.submit("large", gpus=8)
    bed.reason("large", "row row-a: the job needs 5,600 W, 2,800 of 5,600 W are free")
    bed.submit("other")
    bed.submit("small", row="row-a")

    reason = bed.reason("small", "earlier job waits")
    assert (
        f"row row-a: the job needs 2,800 W, 2,800 of 5,600 W are free; 1 earlier job waits: {bed.namespace}/" in reason
    )
    assert bed.rows_of() == {"first": "row-a", "other": "row-b"}

    bed.complete("first")
    assert wait_for(bed.rows_of, lambda found: "large" in found, what="the large job")["large"] == "row-a"


def test_without_act_nothing_is_written(bed: Bed) -> None:
    process = bed.start()
    bed.wait_active()  # without that, Kueue reserves no quota, and there is nothing to decide
    process.stop()
    process = bed.start(act=False)
    bed.submit("a")
    message = "the job needs 2,800 W, 5,600 of 5,600 W were free"  # once Kueue has removed the jobs of earlier tests
    wait_for(lambda: message in process.log_path.read_text(), what="a decision in the log")
    (check,) = bed.workload("a")["status"]["admissionChecks"]
    assert check["state"] == "Pending"
    process.stop()

    bed.start()
    assert bed.running(1) == {"a": "row-a"}


def test_a_check_with_parameters_is_not_active(bed: Bed) -> None:
    parameters = {"apiGroup": "example.org", "kind": "Rows", "name": "rows"}
    name = f"{bed.name}-parameters"
    bed.kube_api.apply(_admission_check(name, parameters=parameters))
    bed.start()
    custom = client.CustomObjectsApi(bed.kube_client)

    def active(check: str) -> Any:
        found = custom.get_cluster_custom_object(GROUP, VERSION, "admissionchecks", check)
        return [
            (each["status"], each["reason"], each["observedGeneration"])
            for each in found.get("status", {}).get("conditions", [])
        ]

    wait_for(lambda: active(name), [("False", "ParametersNotSupported", 1)].__eq__, what="an inactive check")
    wait_for(lambda: active(bed.name), [("True", "Ready", 1)].__eq__, what="an active check")
    custom.delete_cluster_custom_object(GROUP, VERSION, "admissionchecks", name)


def _admission_check(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": CONTROLLER} | spec,
    }


def _account(api: KubeApi, namespace: str) -> Path:
    """Return the kubeconfig of an account with the rights of the power check, and no more."""
    rbac, name = "rbac.authorization.k8s.io", f"power-check-{namespace}"
    subject = {"kind": "ServiceAccount", "name": "power-check", "namespace": namespace}
    account = {"name": subject["name"], "namespace": namespace}
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    api.apply({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": RIGHTS})
    api.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        }
    )
    return api.service_account_kubeconfig(namespace=namespace, name="power-check")
