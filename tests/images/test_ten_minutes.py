"""The page docs/get-started/kubernetes.md, from an empty cluster to the first plan and the answers of the boards.

A shell runs the page's own blocks on a real control plane.  Replaced are only the commands that this machine cannot
have: those of kind, `kubectl port-forward`, and, without images, their build.  The nodes are kwok's, so this test
starts the command of each pod with its environment and volumes.
"""

import logging
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from scripts.dashboards.__main__ import DASHBOARDS
from scripts.repo_checks import ROOT
from tests.testbed import binaries, debian
from tests.testbed.control_plane import control_plane
from tests.testbed.go_tools import KUBERNETES
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.helm import Helm
from tests.testbed.images import VARIABLE
from tests.testbed.kube_api import KubeApi
from tests.testbed.pods import Pod, Roots, own_network, pods_of
from tests.testbed.processes import LOOPBACK, Process
from tests.testbed.prometheus import Prometheus, running_prometheus
from tests.testbed.requirements import skipping_where_unavailable
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1200)]

log = logging.getLogger(__name__)
PAGE = (ROOT / "docs" / "get-started" / "kubernetes.md").read_text()
TEN_MINUTES_S = 600.0
NAMESPACE = "fleetwright"
PORT_ANNOTATION = "prometheus.io/port"
# A function has precedence over the program of its name; `command` runs the program.
REPLACED = """
set -euo pipefail
kind() { :; }
kubectl() {
  case " $* " in
    *" port-forward "*) ;;  # the pods have the loopback address of this shell
    *" rollout status "*)
      command kubectl "$@"
      touch "$HOME/installed"
      until [ -e "$HOME/started" ]; do sleep 0.1; done ;;
    *) command kubectl "$@" ;;
  esac
}
"""
WITHOUT_IMAGES = "make() { :; }\nbuildah() { :; }\n"
# Every other variable of a dashboard is a pattern of labels.
VARIABLES = {"namespace": "", "usd_per_kwh": "0.1", "ttft_slo": "1.0", "__rate_interval": "30s", "__range": "1h"}
# What an installation without a target, a budget or a fault already shows.
ANSWERED = {"API replicas", "Database", "Freeze", "Plans created", "Workers"}


@pytest.fixture(scope="session")
def kubectl() -> Path:
    with skipping_where_unavailable("kubernetes", what="kubectl"):
        cache = binaries.cache_root() / "kubectl"
        tree = debian.cached(cache) or debian.fetch("kubernetes-client", cache=cache, also=lambda _: False)
    return tree / "usr/bin/kubectl"


@pytest.fixture
def cluster(prometheus_programs: Path, tmp_path: Path) -> Iterator[tuple[KubeApi, Prometheus]]:
    """Provide a control plane with a node, and Prometheus, in a network where every port is free."""
    with ExitStack() as stack:
        with skipping_where_unavailable("kubernetes", what="control plane of its own"):
            binaries.find(KUBERNETES)
            stack.enter_context(own_network())
            kube = stack.enter_context(control_plane(tmp_path / "control-plane"))
        api = stack.enter_context(kube.connect())
        GpuNodes(core=client.CoreV1Api(api), pool="kind").add(1)
        (tmp_path / "prometheus").mkdir()
        server = running_prometheus(prometheus_programs / "prometheus", directory=tmp_path / "prometheus")
        yield kube, stack.enter_context(server)


def test_the_page_leads_to_a_plan_and_to_boards_with_data(
    cluster: tuple[KubeApi, Prometheus], roots: Roots, kubectl: Path, helm3: Helm, tmp_path: Path
) -> None:
    kube, prometheus = cluster
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "HOME": str(home),
        "KUBECONFIG": str(kube.kubeconfig_path),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{kubectl.parent}:{helm3.program.parent}:{os.environ['PATH']}",
    }
    started_s = time.monotonic()
    with ExitStack() as stack:
        shell = stack.enter_context(_shell(_script(), environment, tmp_path))
        shell.wait_ready((home / "installed").exists, timeout_s=TEN_MINUTES_S)
        pods = _installed(helm3, kube, claims=tmp_path / "claims")
        for pod in pods:
            process = stack.enter_context(pod.running(roots, folder=tmp_path / pod.name))
            process.wait_ready(pod.is_ready)
        _scrape(prometheus, pods)
        (home / "started").touch()
        assert shell.popen.wait(TEN_MINUTES_S) == 0, shell.log_tail()
        plan_s = time.monotonic() - started_s
        titles = wait_for(lambda: _answered(prometheus), ANSWERED.issubset, what="answers of the boards")
    boards_s = time.monotonic() - started_s
    log.info("first plan after %.0f s, boards after %.0f s: %d panels with data", plan_s, boards_s, len(titles))
    assert "proven the least" in shell.log_path.read_text()
    assert {pod.name for pod in pods} == {
        f"fleetwright-{name}" for name in ("api", "controller", "agent", "guard-row-a")
    }
    assert boards_s < TEN_MINUTES_S


def _script() -> str:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    prelude = REPLACED if os.environ.get(VARIABLE) else REPLACED + WITHOUT_IMAGES
    return prelude + "".join(blocks)


@contextmanager
def _shell(script: str, environment: Mapping[str, str], log_dir: Path) -> Iterator[Process]:
    path = log_dir / "page.sh"
    path.write_text(script)
    with Process.start(["bash", path], name="page", log_dir=log_dir, env=environment, cwd=ROOT) as process:
        yield process


def _installed(helm: Helm, kube: KubeApi, *, claims: Path) -> list[Pod]:
    """Return the pods of the release, as the control plane has them."""
    manifest = helm.run("get", "manifest", NAMESPACE, "--namespace", NAMESPACE, kubeconfig_path=kube.kubeconfig_path)
    with kube.connect() as api:
        listed = client.CoreV1Api(api).list_namespaced_secret(NAMESPACE).items
        secrets = {
            each.metadata.name: {key: _decoded(value) for key, value in each.data.items()}
            for each in listed
            if each.type == "Opaque"
        }
    return pods_of(yaml.safe_load_all(manifest), secrets=secrets, claims=claims)


def _decoded(value: str) -> str:
    return subprocess.run(["base64", "--decode"], input=value, capture_output=True, text=True, check=True).stdout


def _scrape(prometheus: Prometheus, pods: list[Pod]) -> None:
    """Scrape every pod with the annotations that Prometheus's usual configuration finds."""
    targets = [
        (pod.component, f"{LOOPBACK}:{annotations[PORT_ANNOTATION]}")
        for pod in pods
        if (annotations := pod.template["metadata"]["annotations"]).get("prometheus.io/scrape") == "true"
    ]
    assert {name for name, _ in targets} == {"api", "controller", "guard"}
    jobs = [{"job_name": name, "static_configs": [{"targets": [address]}]} for name, address in targets]
    prometheus.configure({"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": jobs})


def _answered(prometheus: Prometheus) -> set[str]:
    panels = [panel for dashboard in DASHBOARDS for row in dashboard.rows for panel in row.panels]
    return {panel.title for panel in panels if all(prometheus.query(_filled_in(each.expr)) for each in panel.queries)}


def _filled_in(expression: str) -> str:
    return re.sub(r"\$(\w+)", lambda found: VARIABLES.get(found[1], ".*"), expression)
