"""The controller as an actor runs it, on a service in this process."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from api.client import AsyncClient, ClientSettingsError, UnauthorizedError
from api.schemas.tokens import Scope
from deploy.common.leader_election import LeaseRole
from deploy.ray_actor.controller_work import ControllerWork, Progress
from deploy.ray_actor.messages import ControllerActorSettings
from tests.testbed.processes import LOOPBACK, free_ports
from tests.testbed.service import TOKENS, RunningService
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


def client_of(service: RunningService, scope: Scope | None) -> Callable[[ControllerActorSettings], AsyncClient]:
    """A client of a service in this process."""
    transport = httpx.ASGITransport(service.app, raise_app_exceptions=False)
    return lambda _settings: AsyncClient(
        "http://localhost", token=TOKENS[scope] if scope else None, transport=transport
    )


def leads_on(done: Progress) -> bool:
    """It leads, says since when, and has gone round more than once."""
    rounds = done.rounds > 1 and done.last_round_s is not None
    return done.role is LeaseRole.LEADER and done.since is not None and rounds


async def until(wanted: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not wanted():
            await asyncio.sleep(0.01)


async def test_it_leads_while_it_runs_and_gives_the_lease_back(sqlite_service: RunningService) -> None:
    controlling = ControllerWork(ControllerActorSettings(period_s=0.1), client=client_of(sqlite_service, Scope.ADMIN))
    begun = asyncio.Event()
    running = asyncio.create_task(controlling.run(begun.set))
    await until(lambda: leads_on(controlling.progress()) or running.done())
    assert begun.is_set()
    assert not running.done()

    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert controlling.progress().role is LeaseRole.UNKNOWN
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
    monkeypatch.setattr("deploy.ray_actor.controller_work.BIND_RETRY_S", 0.01)
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
