"""The actor around a controller, as an object of this process: what it says of itself, and when it ends itself."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from api.client import AsyncClient, ClientSettingsError, UnauthorizedError
from api.schemas.tokens import Scope
from deploy.common.leader_election import LeaseRole
from deploy.ray_actor.cluster import NodeFacts, Placement
from deploy.ray_actor.controller_actor import ControllerActor, ControllerWork
from deploy.ray_actor.messages import ControllerActorSettings, ControllerReport, LoopState
from tests.deploy.ray_actor.doubles import VERSION, ClusterDouble, node
from tests.testbed.processes import LOOPBACK, free_ports
from tests.testbed.service import TOKENS, RunningService
from tests.testbed.waiting import PATIENCE_S, wait_for

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


pytestmark = pytest.mark.anyio


def client_of(service: RunningService, scope: Scope | None) -> Callable[[ControllerActorSettings], AsyncClient]:
    """A client of a service in this process."""
    transport = httpx.ASGITransport(service.app, raise_app_exceptions=False)
    return lambda _settings: AsyncClient(
        "http://localhost", token=TOKENS[scope] if scope else None, transport=transport
    )


def leads_on(work: ControllerWork) -> bool:
    """It leads, says since when, and has gone round more than once."""
    leadership, rounds = work.leadership, work.counts.rounds > 1 and work.counts.last_round_s is not None
    return leadership is not None and leadership.role is LeaseRole.LEADER and leadership.since is not None and rounds


async def until(wanted: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not wanted():
            await asyncio.sleep(0.01)


async def test_it_leads_while_it_runs_and_gives_the_lease_back(sqlite_service: RunningService) -> None:
    controlling = ControllerWork(ControllerActorSettings(period_s=0.1), client=client_of(sqlite_service, Scope.ADMIN))
    begun = asyncio.Event()
    running = asyncio.create_task(controlling.run(begun.set))
    await until(lambda: leads_on(controlling) or running.done())
    assert begun.is_set()
    assert not running.done()

    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert controlling.leadership is None
    async with client_of(sqlite_service, Scope.ADMIN)(ControllerActorSettings()) as api:
        assert (await api.get_lease("controller")).document.holder is None


async def test_a_token_that_is_not_taken_is_told_before_it_begins(sqlite_service: RunningService) -> None:
    controlling = ControllerWork(ControllerActorSettings(), client=client_of(sqlite_service, None))
    with pytest.raises(UnauthorizedError):
        await controlling.run(lambda: pytest.fail("it began"))


async def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "token"
    with pytest.raises(ClientSettingsError, match=f"token file {missing}: No such file or directory"):
        await ControllerWork(ControllerActorSettings(token_file=missing)).run(lambda: pytest.fail("it began"))


async def test_metrics_are_served_once_the_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an upgrade it is the old one's at first."""
    monkeypatch.setattr("deploy.ray_actor.controller_actor.BIND_RETRY_S", 0.01)
    with socket.socket() as taken:
        (port,) = free_ports(1)  # none that a connection of somebody else may have in between
        taken.bind((LOOPBACK, port))
        taken.listen()
        serving = ControllerWork(ControllerActorSettings(metrics_port=port))._served_metrics()
        async with serving, httpx.AsyncClient(trust_env=False) as http:
            await asyncio.sleep(0)
            taken.close()
            async with asyncio.timeout(PATIENCE_S):
                text = await answer_of(http, port)
    assert 'fleetwright_controller_reconciles_total{outcome="ok"} 0.0' in text


async def answer_of(http: httpx.AsyncClient, port: int) -> str:
    while True:
        try:
            return (await http.get(f"http://{LOOPBACK}:{port}/metrics")).text
        except httpx.TransportError:
            await asyncio.sleep(0.01)
