"""The controller actor as an object of this process: its report, and when it ends itself."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from api.client import AsyncClient, ClientSettingsError, InProcessTransport, UnauthorizedError
from api.schemas.tokens import TokenScope
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
    """Records the signals instead of sending them."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("deploy.ray_actor.controller_actor.os.kill", lambda pid, number: sent.append((pid, number)))
    return sent


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    """Controller actors on node a without a token file, so they call no service; all are stopped at the end."""
    monkeypatch.setattr(
        "deploy.ray_actor.controller_actor.own_placement", lambda: Placement("a0", "fleetwright", restarted=True)
    )
    monkeypatch.setattr(
        "deploy.ray_actor.controller_actor.configure_logs", lambda **_level: None
    )  # logging is global to the process
    made: list[ControllerActor] = []

    def host(*nodes: NodeFacts) -> ControllerActor:
        cluster = ClusterDouble(alive=nodes)
        monkeypatch.setattr("deploy.ray_actor.controller_actor.RayCluster", lambda _namespace: cluster)
        settings = ControllerActorSettings(token_file=tmp_path / "missing")
        made.append(ControllerActor("controller", 3, settings.model_dump(mode="json")))
        return made[-1]

    yield host
    for each in made:
        each.stop()


def report_of(host: ControllerActor) -> ControllerReport:
    return ControllerReport.model_validate(host.status())


def test_the_actor_starts_its_controller_and_reports_its_state(make: Make, tmp_path: Path) -> None:
    host = make(node("a"))
    report = wait_for(lambda: report_of(host), lambda report: report.state is LoopState.FAILED, what="failure")
    assert (report.version, report.pid, report.node_id, report.restarted) == (VERSION, os.getpid(), "a0", True)
    assert report.error == f"token file {tmp_path / 'missing'}: No such file or directory"
    assert (report.state, report.role, report.reconciles) == (LoopState.FAILED, "unknown", 0)
    wait_for(lambda: report_of(host).node_actors, what="report of the node actor")


def test_stop_and_resume_can_be_repeated(make: Make) -> None:
    host = make(node("a"))
    for _ in range(2):
        assert ControllerReport.model_validate(host.stop()).state is LoopState.STOPPED
        assert ControllerReport.model_validate(host.stop()).state is LoopState.STOPPED
        host.resume()
        host.resume()
        wait_for(lambda: report_of(host).error, what="the next try")


def test_the_actor_stops_its_loop_and_ends_on_a_draining_node(kills: list[tuple[int, int]], make: Make) -> None:
    host = make(node("a", draining=True), node("b"))
    wait_for(lambda: kills, what="end")
    assert set(kills) == {(os.getpid(), signal.SIGKILL)}
    assert report_of(host).state is LoopState.STOPPED


pytestmark = pytest.mark.anyio


def client_of(service: RunningService, scope: TokenScope | None) -> Callable[[ControllerActorSettings], AsyncClient]:
    """A client of a service in this process."""
    transport = InProcessTransport(service.app, raise_app_exceptions=False)
    return lambda _settings: AsyncClient(
        "http://localhost", token=TOKENS[scope] if scope else None, transport=transport
    )


def leads_on(work: ControllerWork) -> bool:
    """The controller leads, has the start time of its lease, and has reconciled more than once."""
    leadership, enough = work.leadership, work.counts.reconciles > 1 and work.counts.last_reconcile_s is not None
    return leadership is not None and leadership.role is LeaseRole.LEADER and leadership.since is not None and enough


async def until(wanted: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not wanted():
            await asyncio.sleep(0.01)


async def test_the_controller_leads_while_it_runs_and_releases_the_lease(sqlite_service: RunningService) -> None:
    work = ControllerWork(ControllerActorSettings(period_s=0.1), client=client_of(sqlite_service, TokenScope.ADMIN))
    started = asyncio.Event()
    task = asyncio.create_task(work.run(started.set))
    await until(lambda: leads_on(work) or task.done())
    assert started.is_set()
    assert not task.done()

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert work.leadership is None
    async with client_of(sqlite_service, TokenScope.ADMIN)(ControllerActorSettings()) as api:
        assert (await api.get_lease("controller")).document.holder is None


async def test_an_unauthorized_token_is_reported_before_the_start(sqlite_service: RunningService) -> None:
    work = ControllerWork(ControllerActorSettings(), client=client_of(sqlite_service, None))
    with pytest.raises(UnauthorizedError):
        await work.run(lambda: pytest.fail("the work started"))


async def test_a_missing_token_file_is_reported(tmp_path: Path) -> None:
    missing = tmp_path / "token"
    with pytest.raises(ClientSettingsError, match=f"token file {missing}: No such file or directory"):
        await ControllerWork(ControllerActorSettings(token_file=missing)).run(lambda: pytest.fail("the work started"))


async def test_metrics_are_served_once_the_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an upgrade the old controller still has the port."""
    monkeypatch.setattr("deploy.ray_actor.controller_actor.BIND_RETRY_S", 0.01)
    with socket.socket() as taken:
        (port,) = free_ports(1)  # a port outside the range of client connections
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
