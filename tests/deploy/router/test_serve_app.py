"""The router application of Serve, without Serve: replica counts, an unresponsive Serve, and the table in force."""

import json
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray.serve", reason="the extra `ray`")

from ray import serve

from deploy.common.errors import UnreachableError
from deploy.router import serve_app
from deploy.router.router import ReplicaCounts
from deploy.router.serve_app import RouterReplica
from deploy.router.settings import SERVE_NAME
from tests.deploy.router.tables import table
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


def status_of(**running: int) -> SimpleNamespace:
    """The result of `serve.status`."""
    deployments = {name: SimpleNamespace(replica_states={"RUNNING": count}) for name, count in running.items()}
    return SimpleNamespace(applications={"chat": SimpleNamespace(deployments=deployments)})


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], RouterReplica]:
    """A router replica with the given `serve.status`."""

    def made(status: Callable[[], Any]) -> RouterReplica:
        monkeypatch.setattr(serve, "get_replica_context", lambda: SimpleNamespace(app_name="chat"))
        monkeypatch.setattr(serve, "status", status)
        handle = SimpleNamespace(options=lambda **_options: None)  # no test calls the engines
        return RouterReplica({"on-h100": handle, "on-l4": handle}, {})

    return made


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("call: "):
            thread.join(PATIENCE_S)


async def test_the_replicas_of_its_own_engines_and_routers_are_counted(
    replica: Callable[[Callable[[], Any]], RouterReplica],
) -> None:
    counted = replica(lambda: status_of(**{SERVE_NAME: 2, "on-h100": 3, "other": 7}))
    assert await counted._count_replicas() == ReplicaCounts(replicas={"on-h100": 3, "on-l4": 0}, routers=2)


async def test_an_unresponsive_serve_gets_one_call_and_does_not_block(
    replica: Callable[[Callable[[], Any]], RouterReplica], gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_app, "STATUS_S", 0.0)
    silent = replica(lambda: gate.wait(PATIENCE_S) and status_of())
    for _ in range(10):
        with pytest.raises(UnreachableError, match="Serve's status"):
            await silent._count_replicas()
    assert sum(thread.name.startswith("call: ") for thread in threading.enumerate()) == 1


async def test_the_table_in_force_is_reported_also_after_a_refused_one(
    replica: Callable[[Callable[[], Any]], RouterReplica],
) -> None:
    running = replica(lambda: status_of(**{SERVE_NAME: 1, "on-h100": 1, "on-l4": 1}))
    scope = {"type": "http", "method": "GET", "path": "/chat/fleetwright/table", "root_path": "/chat"}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def table_response() -> Any:
        sent.clear()
        await running.__serve_build_asgi_app__()(scope, receive, send)
        return sent[0]["status"], json.loads(sent[-1]["body"]).get("version")

    assert (await table_response())[0] == 503
    good = table(weights={"on-h100": 0.5, "on-l4": 0.5}, version="p1")
    await running.reconfigure({"table": good.model_dump(mode="json")})
    assert await table_response() == (200, "p1")
    unknown = table(weights={"on-t4": 1.0}, version="p2")
    await running.reconfigure({"table": unknown.model_dump(mode="json")})
    assert await table_response() == (200, "p1")
    await running.__serve_build_asgi_app__()._stop()
