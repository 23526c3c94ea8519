"""Kills the controller, a detached actor, at several points of an apply on a running Serve application.

As in test_controller_killed.py, with Ray Serve behind the gate.  Plans alternate, and each takes three writes.  Ray
restarts the actor, which waits until the lease expires that it did not release, and finishes the apply.
"""

import json
import operator
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import httpx
import pytest

from api.schemas.targets import TargetStatus
from deploy.ray_actor.lifecycle import Lifecycle
from deploy.ray_actor.messages import ControllerName
from tests.testbed.controllers import Stage
from tests.testbed.gate import Hold
from tests.testbed.proc import is_running
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_controllers import NAME, conducting, joined_cluster, leader
from tests.testbed.ray_serve import ServeApp, running_serve_app
from tests.testbed.server import ROOT
from tests.testbed.soak import SOAK
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.ray

H100, L4 = "H100-SXM", "L4"  # names of the catalogue
DEPLOYMENTS = {H100: "on-h100", L4: "on-l4"}
POOLS = {"on-h100": "H100", "on-l4": "L4"}  # labels of Ray
FAST, SLOW = {H100: 2, L4: 0}, {H100: 0, L4: 1}
# From one plan to the other and back: start before stop, one replica per step.
THERE = [("on-h100", 1), ("on-h100", 2), ("on-l4", 0)]
BACK = [("on-l4", 1), ("on-h100", 1), ("on-h100", 0)]
WAY = "api-actor"  # through the gate
LEASE_S = 4.0  # an observation of a busy Serve takes a second: a shorter lease ends during it
READ, SCALE = ("GET", "/serve-{name}/.*"), ("POST", "/serve-{name}/.*")
REPORT = ("PUT", "/api-[^/]+/v1/targets/{name}/status")
PLAN, FREEZE = ("GET", "/api-[^/]+/v1/plans/.*"), ("GET", "/api-[^/]+/v1/freeze")
# (the request at which the controller is killed, its ordinal, whether the request had taken effect)
POINTS = (
    (PLAN, 1, True),
    (FREEZE, 1, True),
    (REPORT, 1, False),  # the state is stored before the first write
    (SCALE, 1, False),
    (SCALE, 1, True),
    (REPORT, 2, False),  # after the first write
    (READ, 2, True),
    (SCALE, 2, True),
    (SCALE, 3, False),  # the first replica to stop
    (SCALE, 3, True),
)
TRIED = POINTS if SOAK else POINTS[4:5]


@dataclass
class Serve:
    """Reads Ray Serve's dashboard, and the requests to it."""

    url: str
    writes: list[tuple[str, int]] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if scaled := re.fullmatch(r".*/deployments/([^/]+)/scale", request.url.path):
            self.writes.append((scaled[1], json.loads(request.content)["target_num_replicas"]))
        url = httpx.URL(self.url).copy_with(raw_path=request.url.raw_path)
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            return await http.request(request.method, url, headers=request.headers, content=request.content)

    def effective(self, before: dict[str, int]) -> list[tuple[str, int]]:
        """Return the writes that changed something."""
        counts, found = {DEPLOYMENTS[gpu]: count for gpu, count in before.items()}, []
        for name, count in self.writes:
            if counts[name] != count:
                found.append((name, count))
            counts[name] = count
        return found


@pytest.fixture
def chat(ray_cluster: RayCluster) -> Iterator[ServeApp]:
    with running_serve_app(ray_cluster, pools=POOLS, name="chat") as app:
        app.scale("on-h100", replicas=0)
        app.wait_replicas("on-h100", 0)
        yield app


@pytest.fixture
def conductor(stage: Stage, ray_cluster: RayCluster) -> Iterator[Lifecycle]:
    """Start the controller as its command does."""
    stage.open(WAY)
    command = [sys.executable, "-m", "api.cli", "controller", "start", "--address", ray_cluster.address, "--no-watch"]
    command += ["--url", f"{stage.gate.url}/{WAY}/", "--token-file", str(stage.folder / "token")]
    command += ["--period-s", "0.1", "--lease-s", str(LEASE_S), "--wait", str(PATIENCE_S)]
    with joined_cluster(ray_cluster.address) as joined, conducting(joined) as conductor:
        started = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert started.returncode == 0, started.stderr
        yield conductor


@pytest.mark.timeout(1800)
def test_ray_restarts_a_killed_controller_actor_which_finishes_the_rollout(
    stage: Stage, chat: ServeApp, ray_cluster: RayCluster, conductor: Lifecycle
) -> None:
    def registered(target: str, plan: dict[str, int]) -> tuple[Serve, str]:
        serve = Serve(ray_cluster.dashboard_url)
        return serve, stage.register(target, behind=serve, deployments=DEPLOYMENTS, plan=plan)

    def in_place(target: str, plan: dict[str, int]) -> TargetStatus:
        status = stage.done(target)
        for gpu, count in plan.items():
            assert len(chat.wait_replicas(DEPLOYMENTS[gpu], count)) == count
        return status

    calm, _plan_id = registered("calm", FAST)
    undisturbed = in_place("calm", FAST)
    assert calm.effective(SLOW) == THERE
    before, target_plan = FAST, SLOW
    _one, alive = leader(conductor)
    for number, ((method, path), nth, after) in enumerate(TRIED):
        target, point = f"t{number}", f"{method} {path} {nth} {'after' if after else 'before'}"
        hold = stage.gate.hold(Hold(method, path.format(name=target), nth=nth, after=after))
        serve, plan_id = registered(target, target_plan)
        hold.wait()
        os.kill(alive.pid, signal.SIGKILL)
        wait_for(partial(is_running, alive.pid), operator.not_, what="end of the actor's process")
        stage.gate.holds.clear()

        status = in_place(target, target_plan)
        assert serve.effective(before) == (THERE if target_plan is FAST else BACK), point
        assert status.applied == target_plan, point
        if target_plan is FAST:
            assert (status.planned, status.applied) == (undisturbed.planned, undisturbed.applied), point
        assert status.state is not None
        assert status.state.verified_plan_id == plan_id, point
        assert sum(entry.replicas for entry in status.state.spent) >= len(THERE), f"{point}: uncounted"
        killed = alive
        one, alive = leader(conductor)
        assert one.name == ControllerName(NAME, 1), point
        assert (alive.restarted, alive.pid != killed.pid) == (True, True), point
        assert stage.client.get_lease("controller").document.holder == alive.holder, point
        before, target_plan = target_plan, before
