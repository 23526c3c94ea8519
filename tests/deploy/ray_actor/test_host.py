"""The actor around a controller, as an object of this process: what it says of itself, and when it ends itself."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.ray_actor.cluster import NodeFacts, Place
from deploy.ray_actor.controller_actor import ControllerHost
from deploy.ray_actor.messages import HostReport, HostSettings, HostState
from tests.deploy.ray_actor.doubles import VERSION, ClusterDouble, node
from tests.testbed.waiting import wait_for

Make = Callable[..., ControllerHost]


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
        "deploy.ray_actor.controller_actor.own_place", lambda: Place("a0", "fleetwright", restarted=True)
    )
    monkeypatch.setattr(
        "deploy.ray_actor.controller_actor.configure_logs", lambda **_level: None
    )  # the whole process's
    made: list[ControllerHost] = []

    def host(*nodes: NodeFacts) -> ControllerHost:
        cluster = ClusterDouble(there=nodes)
        monkeypatch.setattr("deploy.ray_actor.controller_actor.RayCluster", lambda _namespace: cluster)
        settings = HostSettings(token_file=tmp_path / "missing")
        made.append(ControllerHost("controller", 3, settings.model_dump(mode="json")))
        return made[-1]

    yield host
    for each in made:
        each.stop()


def said(host: ControllerHost) -> HostReport:
    return HostReport.model_validate(host.status())


def test_it_begins_by_itself_and_says_what_it_is(make: Make, tmp_path: Path) -> None:
    host = make(node("a"))
    report = wait_for(lambda: said(host), lambda report: report.state is HostState.FAILED, what="failure")
    assert (report.version, report.pid, report.node_id, report.restarted) == (VERSION, os.getpid(), "a0", True)
    assert report.error == f"token file {tmp_path / 'missing'}: No such file or directory"
    assert (report.state, report.standing, report.rounds) == (HostState.FAILED, "unknown", 0)
    wait_for(lambda: said(host).watchers, what="word of the watcher")


def test_it_stops_and_goes_on_as_often_as_it_is_told(make: Make) -> None:
    host = make(node("a"))
    for _ in range(2):
        assert HostReport.model_validate(host.stop()).state is HostState.STOPPED
        assert HostReport.model_validate(host.stop()).state is HostState.STOPPED
        host.resume()
        host.resume()
        wait_for(lambda: said(host).error, what="the next try")


def test_on_a_node_that_drains_it_ends_its_loop_and_then_itself(kills: list[tuple[int, int]], make: Make) -> None:
    host = make(node("a", draining=True), node("b"))
    wait_for(lambda: kills, what="end")
    assert set(kills) == {(os.getpid(), signal.SIGKILL)}
    assert said(host).state is HostState.STOPPED
