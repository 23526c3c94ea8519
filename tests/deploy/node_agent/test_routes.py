"""The HTTP routes of an agent with GPUs: access, errors and reports, on a real socket of each kind."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

import httpx
import numpy as np
import pytest

from deploy.common.http_server import ServerTls, server_of, unix_listener
from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.gpu.cap_controller import CapController
from deploy.node_agent.gpu.node import GpuNode, WorkloadPhases
from deploy.node_agent.gpu.simulated import SimulatedDriver
from deploy.node_agent.gpu.state_file import StateFile
from deploy.node_agent.routes import agent_app
from deploy.node_agent.schemas import CAPS_PATH, GPUS_PATH, PHASE_PATH, NodeReport
from fleet.gpus import builtin_gpus
from power.controls import NodeClocks
from tests.testbed.certificates import Authority
from tests.testbed.processes import LOOPBACK
from tests.testbed.waiting import PATIENCE_S, wait_for

TOKEN = "of-the-holders-of-caps"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
REQUEST: dict[str, Any] = {"holder": "planner", "lease_s": 60.0, "power_limit_w": 400.0}


@contextmanager
def serving(
    listener: socket.socket, *, token: str | None = TOKEN, tls: ServerTls | None = None
) -> Iterator[SimulatedDriver]:
    """An agent over simulated GPUs, in a thread of this process, until the block ends."""
    spec = builtin_gpus().get("H100-SXM")
    gpus = SimulatedDriver(spec=spec, count=2, now_s=time.monotonic, rng=np.random.default_rng(0), period_s=0.02)
    node = GpuNode(
        cap_controller=CapController(gpus=gpus, state_file=StateFile(None), acting=True), phases=WorkloadPhases()
    )
    agent = NodeAgent(server="n1", device=node, safe=NodeClocks(0.7, 0.5), now_s=time.monotonic, guarded=False)
    server = server_of(agent_app(agent, token=token, gpus=node), tls=tls)
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listener]),), daemon=True)
    thread.start()
    wait_for(lambda: server.started, what="the agent")
    try:
        yield gpus
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        listener.close()
    assert {(board.limit_w, board.lock_mhz) for board in gpus.boards.values()} == {(spec.tdp_w, None)}


@contextmanager
def client(**more: Any) -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=PATIENCE_S, **more) as http:
        yield http


def agreed(http: httpx.Client) -> bool:
    report = NodeReport.model_validate_json(http.get(GPUS_PATH).content)
    return all(gpu.planned.power_limit_w == gpu.enforced.power_limit_w == 400.0 for gpu in report.gpus)


def test_every_path_on_a_port_requires_the_token() -> None:
    listener = socket.create_server((LOOPBACK, 0))
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    with serving(listener) as gpus, client(base_url=url) as http:
        for method, path in (("GET", GPUS_PATH), ("PUT", CAPS_PATH), ("PUT", PHASE_PATH), ("GET", "/metrics")):
            assert http.request(method, path, json=REQUEST).status_code == 401
        assert http.delete(f"{CAPS_PATH}/planner").status_code == 401
        http.headers.update(BEARER)
        assert http.put(CAPS_PATH, json=REQUEST).json()["gpus"][0]["planned"]["power_limit_w"] == 400.0
        wait_for(lambda: agreed(http), what="the cap")
        metrics = http.get("/metrics").text
        for source in ("planned", "applied", "enforced"):
            line = f'fleetwright_gpu_power_cap_watts{{gpu="GPU-sim-0",server="n1",source="{source}"}} 400.0'
            assert line in metrics.replace('server="n1",gpu="GPU-sim-0"', 'gpu="GPU-sim-0",server="n1"')
        assert 'fleetwright_gpu_cap_events_total{cap="power",event="written",server="n1"} 2.0' in _sorted(metrics)
        assert http.put(PHASE_PATH, json={"worker": "w", "phase": "token", "lease_s": 9.0}).json()["phase"] == "token"
        assert http.delete(f"{CAPS_PATH}/planner").status_code == 200
        wait_for(lambda: {board.limit_w for board in gpus.boards.values()} == {700.0}, what="the original cap")
        assert http.delete(f"{CAPS_PATH}/planner").status_code == 404
        http.put(CAPS_PATH, json=REQUEST)
        wait_for(lambda: agreed(http), what="the cap again")


def _sorted(metrics: str) -> str:
    """The metrics with the labels of each line in alphabetical order."""
    lines = []
    for line in metrics.splitlines():
        name, brace, rest = line.partition("{")
        labels, _, value = rest.rpartition("}")
        lines.append(f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}" if brace else line)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"power_limit_w": 5.0}, "power_limit_w: must be from "),
        ({"clock_mhz": 5}, "clock_mhz: must be from "),
        ({"gpus": ["GPU-none"]}, "gpus: no 'GPU-none' here; known: GPU-sim-0, GPU-sim-1"),
        ({"power_limit_w": None}, "at least one is needed"),
        ({"holder": "guard"}, "'guard' is reserved for /v1/clocks"),
    ],
)
def test_an_invalid_cap_request_is_refused_by_field(change: dict[str, Any], message: str) -> None:
    listener = socket.create_server((LOOPBACK, 0))
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    with serving(listener), client(base_url=url, headers=BEARER) as http:
        response = http.put(CAPS_PATH, json=REQUEST | change)
        assert response.status_code == 422
        assert message in response.json()["detail"]
        assert http.get(GPUS_PATH).json()["leases"] == []


def test_a_unix_socket_has_the_configured_file_mode(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    listener = unix_listener(path, mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    with serving(listener), client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://agent") as http:
        assert http.put(CAPS_PATH, json=REQUEST).status_code == 401
        http.headers.update(BEARER)
        http.put(CAPS_PATH, json=REQUEST).raise_for_status()
        wait_for(lambda: agreed(http), what="the cap")
        with pytest.raises(OSError, match="Address already in use"):
            unix_listener(path, mode=0o600)
    again = unix_listener(path, mode=0o660)  # the earlier listener is closed
    assert path.stat().st_mode & 0o777 == 0o660
    again.close()


def test_mutual_tls_accepts_only_certificates_of_the_authority(tmp_path: Path) -> None:
    authority, strangers = Authority.create(tmp_path / "ours"), Authority.create(tmp_path / "theirs")
    key_pair = authority.issue("agent", common_name="agent", hosts=[LOOPBACK])
    tls = ServerTls(key_pair.cert_path, key_pair.key_path, authority.cert_path)
    listener = socket.create_server((LOOPBACK, 0))
    url = f"https://{LOOPBACK}:{listener.getsockname()[1]}"

    def trusting(of: Authority | None) -> SSLContext:
        context = create_default_context(cafile=authority.cert_path)
        if of is not None:
            pair = of.issue("guard", common_name="guard")
            context.load_cert_chain(pair.cert_path, pair.key_path)
        return context

    with serving(listener, token=None, tls=tls):
        for untrusted in (None, strangers):
            with client(base_url=url, verify=trusting(untrusted)) as http, pytest.raises(httpx.TransportError):
                http.get(GPUS_PATH)
        with client(base_url=url, verify=trusting(authority)) as http:
            http.put(CAPS_PATH, json=REQUEST).raise_for_status()
            wait_for(lambda: agreed(http), what="the cap")
