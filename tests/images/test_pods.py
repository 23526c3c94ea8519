"""Every container of the chart starts as its pod describes it: read-only, as its user, with its volumes and memory.

`make image-test` runs them in the images that it builds, other runs in the checkout.
"""

import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from api.client import Client
from placement.request import PlacementRequest
from tests.helm.chart import POSTGRES, render
from tests.testbed.helm import Helm
from tests.testbed.images import TARGETS, ImageRoots
from tests.testbed.pods import ADDRESS, USER, Pod, Roots, own_network, pods_of, resident_mib
from tests.testbed.postgres import PostgresPrograms, running_postgres
from tests.testbed.processes import LOOPBACK, Process
from tests.testbed.requirements import skipping_where_unavailable

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]

log = logging.getLogger(__name__)
AGENT_MB = 300
FIRST_PLACEMENT_S = 3.0
ADMIN = f"fw_{'admin':0<12}_{'t' * 43}"
GUARD = {
    "settings": {"rating_w": 20_000},
    "agents": [{"name": "node-1", "url": f"http://{LOOPBACK}:9403", "duty": "low"}],
}
JOB = {"nodes": 2, "ranks_per_node": 8}
EVERYTHING = {
    "agent": {"enabled": True, "device": "simulated", "token": {"existingSecret": "agents"}},
    "auth": {"bootstrapToken": {"existingSecret": "fleetwright-tokens", "key": "admin"}},
    "controller": {"token": {"existingSecret": "fleetwright-tokens", "key": "admin"}},
    "faultMonitors": {
        "llm": {
            "job": JOB,
            "names": ["gpu-1", "gpu-2"],
            "apiToken": {"existingSecret": "fleetwright-tokens", "key": "admin"},
            "recorderToken": {"existingSecret": "agents"},
        },
    },
    "powerGuards": {
        "row-a": {
            "config": GUARD,
            "agentToken": {"existingSecret": "agents"},
            "apiToken": {"existingSecret": "fleetwright-tokens", "key": "admin"},
        },
    },
    "remediators": {
        "train": {
            "rayAddress": f"{ADDRESS}:6379",
            "rayPeers": [{"podSelector": {"matchLabels": {"app": "ray"}}}],
            "token": {"existingSecret": "fleetwright-tokens", "key": "admin"},
        },
    },
}
# In this order, because each needs those before it.
COMPONENTS = ("migrate", "api", "test", "worker", "controller", "agent", "guard", "fault-monitor", "remediation")


@dataclass(frozen=True, kw_only=True)
class Running:
    pods: dict[str, Pod]
    processes: dict[str, Process]


@pytest.fixture(scope="module")
def running(
    roots: Roots,
    helm3: Helm,
    postgres_programs: PostgresPrograms,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    """Start every pod, each once the one before it is ready."""
    folder = tmp_path_factory.mktemp("pods")
    values = folder / "values.json"
    values.write_text(json.dumps(EVERYTHING))
    with ExitStack() as stack:
        with skipping_where_unavailable("kubernetes", what="network of the pods"):
            stack.enter_context(own_network())
        (folder / "postgres").mkdir()
        server = stack.enter_context(running_postgres(postgres_programs, log_dir=folder / "postgres", fsync=False))
        url = {"url": server.url()}
        secrets = {
            "fleetwright-tokens": {"admin": ADMIN},
            "agents": {"token": "a" * 43},
            "fleetwright-database": url,
            "fleetwright-migrations": url,
        }
        objects = render(helm3, "--values", values, profile=POSTGRES)
        pods = {pod.component: pod for pod in pods_of(objects, secrets=secrets, claims=folder)}
        assert set(COMPONENTS) == pods.keys()
        processes = {}
        for component in COMPONENTS:
            pod = pods[component]
            process = stack.enter_context(pod.running(roots, folder=folder / component))
            if pod.kind == "Job":
                assert process.popen.wait(120) == 0, process.log_tail()
            elif component == "remediation":  # ready once it has joined a Ray cluster, which there is none of
                process.wait_ready(partial(_has_started_ray, process))
            else:
                process.wait_ready(pod.is_ready)
                processes[component] = process
        yield Running(pods=pods, processes=processes)


@pytest.mark.usefixtures("running")
def test_the_first_placement_finds_its_kernels_compiled(roots: Roots) -> None:
    request = PlacementRequest(loads=((4.0, 2.0, 1.0, 1.0),), slots=6, gpus=2, nodes=1)
    with Client(f"http://{LOOPBACK}:8400", token=ADMIN) as client:
        started_s = time.monotonic()
        client.create_placement(request)
        first_s = time.monotonic() - started_s
    log.info("first placement after %.2f s", first_s)
    if isinstance(roots, ImageRoots):
        assert first_s < FIRST_PLACEMENT_S


def test_every_container_has_its_user_and_a_read_only_root(running: Running, roots: Roots) -> None:
    for component, process in running.processes.items():
        pid = _container_pid(process)
        mounts = Path(f"/proc/{pid}/mountinfo").read_text()
        (root,) = re.findall(r"^\S+ \S+ \S+ \S+ / (\S+)", mounts, re.MULTILINE)[-1:]
        assert "ro" in root.split(","), component
        status = Path(f"/proc/{pid}/status").read_text()
        (uid,) = re.findall(r"^Uid:\s+(\d+)", status, re.MULTILINE)
        if isinstance(roots, ImageRoots):
            assert int(uid) == USER, component
            assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), component


def test_every_container_stays_below_its_memory_limit(running: Running) -> None:
    for component, process in running.processes.items():
        used_mib, limit_mib = resident_mib(process), running.pods[component].memory_limit_mib()
        log.info("%s uses %.0f of %.0f MiB", component, used_mib, limit_mib)
        assert used_mib < limit_mib, component


def test_the_images_have_the_users_and_the_sizes_of_their_processes(images: ImageRoots) -> None:
    tags = {"agent": "fleetwright:0.2.0-agent", "api": "fleetwright:0.2.0-api", "full": "fleetwright:0.2.0"}
    sizes = {target: images.size_mb(tags[target]) for target in TARGETS}
    log.info("sizes in MB: %s", {target: round(size) for target, size in sizes.items()})
    assert sizes["agent"] < AGENT_MB
    assert sizes["agent"] < sizes["api"] < sizes["full"]
    for tag in tags.values():
        assert images.config(tag)["User"] == f"{USER}:{USER}"
        assert images.config(tag)["Entrypoint"] == ["fleetwright"]


def test_the_acting_agent_ends_with_the_reason_on_a_node_without_a_driver(
    helm3: Helm, roots: Roots, tmp_path: Path
) -> None:
    values = tmp_path / "values.json"
    acting = {"enabled": True, "act": True, "device": "nvml", "token": {"existingSecret": "agents"}, "port": 9433}
    values.write_text(json.dumps({"agent": acting}))
    objects = render(helm3, "--values", values)
    (agent,) = (
        pod
        for pod in pods_of(objects, secrets={"agents": {"token": "a" * 43}}, claims=tmp_path)
        if pod.component == "agent"
    )
    assert agent.container["securityContext"]["runAsUser"] == 0
    with agent.running(roots, folder=tmp_path / "agent") as process:
        assert process.popen.wait(120) != 0
    text = process.log_path.read_text()
    assert "NVML" in text
    assert "Traceback" not in text


def _has_started_ray(process: Process) -> bool:
    return f"GCS at address {ADDRESS}:6379" in process.log_tail()


def _container_pid(process: Process) -> int:
    """Return the first process in the container: the child of `unshare`."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])
