"""The actor around a controller, as an object of this process: what it says of itself, and when it ends itself."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.ray_actor.cluster import Placement
from deploy.ray_actor.controller_actor import ControllerActor
from deploy.ray_actor.interface import NodeFacts
from deploy.ray_actor.messages import ControllerActorSettings, ControllerReport, LoopState
from tests.deploy.ray_actor.doubles import VERSION, ClusterDouble, node
from tests.testbed.waiting import wait_for

Make = Callable[..., ControllerActor]


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that were sent, and went nowhere."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("deploy.ray_actor.controller_actor.os.kill", lambda pid, number: sent.append((pid, number)))
    return sent


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    """Hosts on node a whose token is not there, so that nobody is called; all are stopped at the end."""
    monkeypatch.setattr(
        "deploy.ray_actor.controller_actor.own_placement", lambda: Placement("a0", "fleetwright", restarted=True)
    )
    monkeypatch.setattr(
        "deploy.ray_actor.controller_actor.configure_logs", lambda **_level: None
    )  # the whole process's
    made: list[ControllerActor] = []

    def host(*nodes: NodeFacts) -> ControllerActor:
        cluster = ClusterDouble(there=nodes)
        monkeypatch.setattr("deploy.ray_actor.controller_actor.RayCluster", lambda _namespace: cluster)
        settings = ControllerActorSettings(token_file=tmp_path / "missing")
        made.append(ControllerActor("controller", 3, settings.model_dump(mode="json")))
        return made[-1]

    yield host
    for each in made:
        each.stop()


def said(host: ControllerActor) -> ControllerReport:
    return ControllerReport.model_validate(host.status())


def test_it_begins_by_itself_and_says_what_it_is(make: Make, tmp_path: Path) -> None:
    host = make(node("a"))
    report = wait_for(lambda: said(host), lambda report: report.state is LoopState.FAILED, what="failure")
    assert (report.version, report.pid, report.node_id, report.restarted) == (VERSION, os.getpid(), "a0", True)
    assert report.error == f"token file {tmp_path / 'missing'}: No such file or directory"
    assert (report.state, report.standing, report.rounds) == (LoopState.FAILED, "unknown", 0)
    wait_for(lambda: said(host).watchers, what="word of the watcher")


def test_it_stops_and_goes_on_as_often_as_it_is_told(make: Make) -> None:
    host = make(node("a"))
    for _ in range(2):
        assert ControllerReport.model_validate(host.stop()).state is LoopState.STOPPED
        assert ControllerReport.model_validate(host.stop()).state is LoopState.STOPPED
        host.resume()
        host.resume()
        wait_for(lambda: said(host).error, what="the next try")


def test_on_a_node_that_drains_it_ends_its_loop_and_then_itself(kills: list[tuple[int, int]], make: Make) -> None:
    host = make(node("a", draining=True), node("b"))
    wait_for(lambda: kills, what="end")
    assert set(kills) == {(os.getpid(), signal.SIGKILL)}
    assert said(host).state is LoopState.STOPPED
