"""The guard and its agents over mutual TLS: each accepts only certificates of the configured authority."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.common.credentials import CertificateError
from deploy.common.http_server import ServerTls, server_of
from deploy.node_agent.routes import agent_app
from deploy.power_guard.config import GuardFile
from power.guard import GuardMode
from tests.deploy.power_guard.row_of_agents import AgentRow, Guarding, guarding, staged
from tests.testbed.certificates import Authority, KeyPair
from tests.testbed.processes import LOOPBACK
from tests.testbed.waiting import PATIENCE_S, wait_for


@contextmanager
def over_tls(row: AgentRow, authority: Authority) -> Iterator[str]:
    """Serve the first agent of the row behind mutual TLS."""
    key_pair = authority.issue("agent", common_name="agent", hosts=[LOOPBACK])
    tls = ServerTls(key_pair.cert_path, key_pair.key_path, authority.cert_path)
    server = server_of(agent_app(row.nodes[0].agent, token=None), tls=tls)
    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listener]),), daemon=True)
        thread.start()
        wait_for(lambda: server.started, what="the agent")
        try:
            yield f"https://{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(PATIENCE_S)


def guard_after_two_cycles(row: AgentRow, url: str, authority: Authority, key_pair: KeyPair) -> Guarding:
    """A guard with that certificate, after some reconciles."""
    tls = {"authority": str(authority.cert_path), "certificate": str(key_pair.cert_path), "key": str(key_pair.key_path)}
    guard = guarding(row.config(agents=[{"name": "n0", "url": url}], agent_tls=tls), manual_clock=row.manual_clock)

    async def reconciles() -> None:
        async with aclosing(guard.agents):
            await guard.reconcile(2)

    asyncio.run(reconciles())
    return guard


def test_guard_and_agents_accept_only_certificates_of_their_authority(tmp_path: Path) -> None:
    ours, theirs = Authority.create(tmp_path / "ours"), Authority.create(tmp_path / "theirs")
    mine, strangers = (each.issue("guard", common_name="guard") for each in (ours, theirs))
    with staged(1) as row, over_tls(row, ours) as url:
        for authority, key_pair in ((ours, strangers), (theirs, mine)):
            guard = guard_after_two_cycles(row, url, authority, key_pair)
            assert guard.agents.reports == [None]
            assert row.nodes[0].agent.telemetry().holder is None
        guard = guard_after_two_cycles(row, url, ours, mine)
        assert row.nodes[0].agent.telemetry().holder == "guard"
        assert guard.mode() is GuardMode.DEGRADED, "the guard has telemetry but no budget"


def test_unusable_certificates_are_reported_before_any_request(tmp_path: Path) -> None:
    none = tmp_path / "none"
    tls = {"authority": str(none), "certificate": str(none), "key": str(none)}
    changes: dict[str, Any] = {"agents": [{"name": "n0", "url": "https://n0:1"}], "agent_tls": tls}
    with pytest.raises(CertificateError, match=r"agent_tls: .*none.*: No such file"):
        guarding(AgentRow().config(settings={"rating_w": 5000.0}, **changes))


def test_with_certificates_agent_urls_must_use_https() -> None:
    file: dict[str, Any] = {
        "row": "r",
        "settings": {"rating_w": 1000.0},
        "agents": [{"name": "n0", "url": "http://n0:1"}],
        "agent_tls": {"authority": "a", "certificate": "b", "key": "c"},
    }
    with pytest.raises(ValueError, match="must begin with https:"):
        GuardFile.model_validate(file)
