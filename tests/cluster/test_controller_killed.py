"""Kills `fleetwright controller run` at every kind of point of an apply, and runs two controllers at once.

Real processes use real sockets.  Between the controllers and their services, a gate holds the one request at which the
controller is killed.  Only the application is a double; test_controller_killed_on_serve.py uses a real one.
"""

import json
import os
import signal

import httpx
import pytest

from deploy.common.leader_election import MARGIN
from tests.deploy.actuators.serve_double import ServeDouble
from tests.deploy.controller.harness import app
from tests.testbed.controllers import Stage
from tests.testbed.gate import Hold, Passed
from tests.testbed.processes import Process
from tests.testbed.soak import SOAK
from tests.testbed.waiting import PATIENCE_S, wait_for

READ, STATUS = ("GET", "/serve-{name}/.*"), "/api-[^/]+/v1/targets/{name}/status"
SCALE, FREEZE = ("POST", "/serve-{name}/.*"), ("GET", "/api-[^/]+/v1/freeze")
RECALL, REPORT, TARGET = ("GET", STATUS), ("PUT", STATUS), ("GET", "/api-[^/]+/v1/targets/{name}")
PLAN = ("GET", "/api-[^/]+/v1/plans/.*")
# (the request at which the controller is killed, its ordinal, whether the request had taken effect)
POINTS = (
    (READ, 1, False),
    (RECALL, 1, False),
    (PLAN, 1, True),
    (TARGET, 1, True),
    (FREEZE, 1, True),
    (REPORT, 1, False),  # the state is stored before the first write
    (REPORT, 1, True),
    (SCALE, 1, False),
    (SCALE, 1, True),
    (REPORT, 2, False),  # after the first write
    (READ, 2, True),
    (SCALE, 2, True),
    (SCALE, 3, False),  # the first replica to stop
    (SCALE, 3, True),
    (REPORT, 7, True),  # the plan is applied
)
TRIED = POINTS if SOAK else POINTS[3::5]


def register(stage: Stage, name: str, serve: ServeDouble) -> str:
    """Register a target whose plan takes three writes; return the plan's id."""

    async def respond(request: httpx.Request) -> httpx.Response:
        response = await serve.answer(request)
        serve.settle()
        return response

    return stage.register(name, behind=respond, deployments={"B200": "on-B200", "L4": "on-L4"}, plan={"B200": 2})


def effective(serve: ServeDouble) -> list[tuple[str, int]]:
    """Return the writes that changed something."""
    counts, found = {"on-B200": 0, "on-L4": 1}, []
    for name, count in serve.writes:
        if counts[name] != count:
            found.append((name, count))
        counts[name] = count
    return found


@pytest.mark.timeout(1200)
def test_the_next_controller_finishes_the_rollout_of_a_killed_one(stage: Stage) -> None:
    """Each controller finishes the work of the previous one, and is killed at the next point."""
    (name, alive), waiting = stage.start(), stage.start()
    stage.open(name)
    calm = app(B200=0, L4=1)
    plan_id = register(stage, "calm", calm)
    undisturbed = stage.done("calm")
    writes = effective(calm)  # on a slow machine a lease may expire during a write, which is then repeated
    assert writes == [("on-B200", 1), ("on-B200", 2), ("on-L4", 0)]

    for number, ((method, path), nth, after) in enumerate(TRIED):
        target, serve = f"t{number}", app(B200=0, L4=1)
        hold = stage.gate.hold(Hold(method, path.format(name=target), nth=nth, after=after))
        plan_id = register(stage, target, serve)
        hold.wait()
        os.kill(alive.pid, signal.SIGKILL)
        alive.popen.wait()
        stage.gate.holds.clear()
        (name, alive), waiting = waiting, stage.start()
        stage.open(name)

        status = stage.done(target)
        point = f"{method} {path} {nth} {'after' if after else 'before'}"
        assert effective(serve) == writes, point
        assert serve.counts == calm.counts, point
        assert (status.planned, status.applied) == (undisturbed.planned, undisturbed.applied), point
        assert status.state is not None
        assert status.state.verified_plan_id == plan_id, point
        assert sum(entry.replicas for entry in status.state.spent) >= len(writes), f"{point}: uncounted"


def test_an_isolated_leader_abandons_its_write_within_its_lease_and_the_next_one_finishes(stage: Stage) -> None:
    """The write hangs and the connection to the API is closed: only the leader's own lease ends the write.

    The leader abandons the write MARGIN before the last lease that the API granted can expire; the assertion allows
    half of MARGIN for the machine's delay.
    """
    lease_s = 8.0  # less than the time limit of a target's response
    first, leader = stage.start(lease_s=lease_s)
    second, follower = stage.start(lease_s=15.0)  # a busy machine must not delay a write beyond the lease
    stage.open(first)
    wait_for(lambda: renewals(stage, first), what="leader")
    stage.open(second)
    serve = app(B200=0, L4=1)
    hold = stage.gate.hold(Hold("POST", "/serve-chat/.*", closes=first))
    register(stage, "chat", serve)
    hold.wait()
    assert hold.given_up.wait(PATIENCE_S), "it writes without a lease"
    assert hold.given_up_s is not None
    assert hold.given_up_s - renewals(stage, first)[-1] <= lease_s * (1.0 - MARGIN / 2.0)
    stage.done("chat")
    assert serve.writes == [("on-B200", 1), ("on-B200", 2), ("on-L4", 0)]
    written_s = [each.came_s for each in stage.gate.passed if (each.method, each.path[:12]) == ("POST", "/serve-chat/")]
    assert min(written_s) > hold.given_up_s, "two controllers write at the same time"
    assert leader.running()
    assert writes_logged(leader) == []
    assert writes_logged(follower) == [1, 2, 0]


def test_only_one_of_two_controllers_writes(stage: Stage) -> None:
    both = [stage.start(lease_s=60.0), stage.start(lease_s=60.0)]
    for name, _process in both:
        stage.open(name)
    serve = app(B200=0, L4=1)
    register(stage, "chat", serve)
    stage.done("chat")
    assert serve.writes == [("on-B200", 1), ("on-B200", 2), ("on-L4", 0)]
    assert sorted(len(writes_logged(process)) for _name, process in both) == [0, 3]


def writes_logged(process: Process) -> list[int]:
    """Return the replica counts that a controller logged as requested."""
    lines = [json.loads(line) for line in process.log_path.read_text().splitlines() if line.startswith("{")]
    return [line["replicas_after"] for line in lines if line.get("event") == "replicas_requested"]


def renewals(stage: Stage, name: str) -> list[float]:
    """Return the steady-clock times of the renewals that the API granted to a controller."""
    path = f"/{name}/v1/leases/controller"
    return [each.came_s for each in stage.gate.passed if each.path == path and _grants(each)]


def _grants(passed: Passed) -> bool:
    return passed.method == "PUT" and passed.status < 300
