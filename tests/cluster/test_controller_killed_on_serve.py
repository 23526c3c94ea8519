"""`fleetwright controller run` killed at ten points of an apply on a running Serve application.

As in test_controller_killed.py, with Ray Serve itself behind the gate: plans take turns, each takes three writes, and
each controller finishes what the one before it left.
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from api.schemas.targets import TargetStatus
from tests.testbed.controllers import Stage
from tests.testbed.gate import Hold
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import ServeApp, running_serve_app
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.ray

H100, L4 = "H100-SXM", "L4"  # as the catalogue names them
DEPLOYMENTS = {H100: "on-h100", L4: "on-l4"}
POOLS = {"on-h100": "H100", "on-l4": "L4"}  # as Ray labels them
FAST, SLOW = {H100: 2, L4: 0}, {H100: 0, L4: 1}
# From the one to the other, and back: make before break, one replica a step.
THERE = [("on-h100", 1), ("on-h100", 2), ("on-l4", 0)]
BACK = [("on-l4", 1), ("on-h100", 1), ("on-h100", 0)]
LEASE_S = 4.0  # a look at a busy Serve takes a second: a shorter lease ends while the controller waits for it
READ, SCALE = ("GET", "/serve-{name}/.*"), ("POST", "/serve-{name}/.*")
REPORT = ("PUT", "/api-[^/]+/v1/targets/{name}/status")
PLAN, FREEZE = ("GET", "/api-[^/]+/v1/plans/.*"), ("GET", "/api-[^/]+/v1/freeze")
# (the request at which it dies, which of its kind, whether it had taken effect by then)
POINTS = (
    (PLAN, 1, True),
    (FREEZE, 1, True),
    (REPORT, 1, False),  # written down before the first write
    (SCALE, 1, False),
    (SCALE, 1, True),
    (REPORT, 2, False),  # after the first write
    (READ, 2, True),
    (SCALE, 2, True),
    (SCALE, 3, False),  # the first replica to be given up
    (SCALE, 3, True),
)


@dataclass
class Serve:
    """Ray Serve's dashboard, and what was asked of it."""

    url: str
    writes: list[tuple[str, int]] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if asked := re.fullmatch(r".*/deployments/([^/]+)/scale", request.url.path):
            self.writes.append((asked[1], json.loads(request.content)["target_num_replicas"]))
        url = httpx.URL(self.url).copy_with(raw_path=request.url.raw_path)
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            return await http.request(request.method, url, headers=request.headers, content=request.content)

    def effective(self, before: dict[str, int]) -> list[tuple[str, int]]:
        """The writes that changed something."""
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


@pytest.mark.timeout(1800)
def test_a_controller_killed_anywhere_is_finished_by_the_next_on_ray_serve(
    stage: Stage, chat: ServeApp, ray_cluster: RayCluster
) -> None:
    (name, alive), waiting = stage.start(lease_s=LEASE_S), stage.start(lease_s=LEASE_S)
    stage.open(name)

    def registered(target: str, plan: dict[str, int]) -> Serve:
        serve = Serve(ray_cluster.dashboard_url)
        stage.register(target, behind=serve, deployments=DEPLOYMENTS, plan=plan)
        return serve

    def in_place(target: str, plan: dict[str, int]) -> TargetStatus:
        status = stage.done(target)
        for gpu, count in plan.items():
            assert len(chat.wait_replicas(DEPLOYMENTS[gpu], count)) == count
        return status

    calm = registered("calm", FAST)
    undisturbed = in_place("calm", FAST)
    assert calm.effective(SLOW) == THERE
    before, wanted = FAST, SLOW
    for number, ((method, path), nth, after) in enumerate(POINTS):
        target, point = f"t{number}", f"{method} {path} {nth} {'after' if after else 'before'}"
        hold = stage.gate.hold(Hold(method, path.format(name=target), nth=nth, after=after))
        serve = registered(target, wanted)
        hold.wait()
        os.kill(alive.pid, signal.SIGKILL)
        alive.popen.wait()
        stage.gate.holds.clear()
        (name, alive), waiting = waiting, stage.start(lease_s=LEASE_S)
        stage.open(name)

        status = in_place(target, wanted)
        assert serve.effective(before) == (THERE if wanted is FAST else BACK), point
        assert status.applied == wanted, point
        if wanted is FAST:
            assert (status.planned, status.applied) == (undisturbed.planned, undisturbed.applied), point
        before, wanted = wanted, before
    assert waiting[1].running()
