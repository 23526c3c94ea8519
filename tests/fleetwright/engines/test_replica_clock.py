"""A plan's clock from a worker to its GPUs through a real agent: request, read-back and lease expiry."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.common.http_server import ServerTls, unix_listener
from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.gpu.cap_controller import CapController
from deploy.node_agent.gpu.interface import GpuDriver
from deploy.node_agent.gpu.node import GpuNode, WorkloadPhases
from deploy.node_agent.gpu.nvml import NvmlDriver
from deploy.node_agent.gpu.simulated import SimulatedDriver
from deploy.node_agent.gpu.state_file import StateFile
from deploy.node_agent.routes import agent_app
from fleet.gpus import builtin_gpus
from fleetwright.engines.agent_client import AgentAccess, AgentError, RefusedError
from fleetwright.engines.replica_clock import LEASE_S, ReplicaClock
from power.controls import NodeClocks
from tests.deploy.node_agent.gpu.stub_driver import StubDriver
from tests.deploy.node_agent.test_routes import TOKEN, serving
from tests.testbed.certificates import Authority
from tests.testbed.processes import LOOPBACK
from tests.testbed.waiting import wait_for

ROOT = Path(__file__).parents[3]
SPEC = builtin_gpus().get("H100-SXM")
FULL_MHZ = 1980
SAFE = 0.5

WORKER = """
import sys, time
from fleetwright.engines.replica_clock import ReplicaClock
clock = ReplicaClock(lease_s=float(sys.argv[2]), local=lambda: None)
clock.follow({"clock": float(sys.argv[1])})
time.sleep(600)
"""


@dataclass
class Node:
    """One node's agent and GPUs.  The test sets the time; workers call the application without a socket."""

    gpus: GpuDriver
    state: Path | None = None
    now_s: float = 100.0
    down: bool = False
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start a new agent over the same GPUs."""
        state_file = StateFile(self.state, boot="boot-1")
        cap_controller = CapController(
            gpus=self.gpus, state_file=state_file, acting=True, safe_share=SAFE, now_s=lambda: self.now_s
        )
        self.node = GpuNode(cap_controller=cap_controller, phases=WorkloadPhases(), now_s=lambda: self.now_s)
        self.agent = NodeAgent(
            server="n1", device=self.node, safe=NodeClocks(0.7, SAFE), now_s=lambda: self.now_s, guarded=False
        )
        self._transport = httpx.ASGITransport(agent_app(self.agent, token=None, gpus=self.node))
        self.advance()

    def advance(self, count: int = 3) -> None:
        for _ in range(count):
            self.node.refresh()
            self.node.cap_controller.reconcile()
            self.now_s += 0.25

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.requests.append(method)
        if self.down:
            raise AgentError("unix:/run/agent.sock: Connection refused")
        reply = asyncio.run(self._answer(method, path, body))
        if reply.status_code != 200:
            raise RefusedError(reply.status_code, reply.json()["detail"])
        return dict(reply.json())

    async def _answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://agent") as http:
            return await http.request(method, path, json=body)

    def worker(self, *own: int, name: str = "w") -> ReplicaClock:
        """A worker with these GPUs; the test calls its steps."""
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, own))}
        clock = ReplicaClock(
            agent=self, holder=name, environment=environment, local=lambda: None, steady_s=lambda: self.now_s
        )
        clock._thread = NoThread()  # type: ignore[assignment]
        return clock

    def apply(self, clock: ReplicaClock, share: float) -> None:
        """Apply a new `user_config` and wait for the read-back."""
        clock.follow({"clock": share, "batch": 8})
        clock.step()
        self.advance()
        clock.step()

    @property
    def locks(self) -> list[int | None]:
        return [self.gpus.enforced(gpu.uuid).clock_mhz for gpu in self.gpus.identities()]


class NoThread:
    def join(self, _wait_s: float) -> None:
        """No thread runs."""


def simulated(count: int = 2, **more: Any) -> Node:
    node: list[Node] = []
    now_s = lambda: node[0].now_s if node else 0.0  # noqa: E731
    node.append(Node(SimulatedDriver(spec=SPEC, count=count, now_s=now_s, rng=np.random.default_rng(0)), **more))
    return node[0]


def at(share: float) -> int:
    """The GPU's clock for this share: a multiple of 15 MHz, rounded down."""
    return max(FULL_MHZ - 15 * -int(-(FULL_MHZ * (1 - share) - 0.5) // 15), 345)


def test_a_clock_share_is_set_on_the_workers_own_gpus_and_read_back() -> None:
    node = simulated(4)
    clock = node.worker(1, 2)
    node.apply(clock, 0.75)
    assert node.locks == [None, 1485, 1485, None]
    assert [clock.clock_wanted, clock.clock_enforced] == [0.75, 0.75]
    node.apply(clock, 0.5)
    assert node.locks == [None, 990, 990, None]
    node.apply(clock, 1.0)
    assert node.locks == [None] * 4
    assert clock.clock_enforced == 1.0
    assert node.node.cap_controller.leases() == ()


def test_the_reported_clock_is_the_enforced_one_and_expires() -> None:
    node = simulated()
    node.gpus.ignored_share = 1.0  # type: ignore[attr-defined]
    clock = node.worker(0)
    node.apply(clock, 0.75)
    assert clock.clock_enforced == 1.0
    node.gpus.ignored_share = 0.0  # type: ignore[attr-defined]
    node.advance(60)
    clock.step()
    assert clock.clock_enforced == 0.75
    node.now_s += LEASE_S + 1  # an expired read-back is not reported
    assert clock.clock_enforced is None


@given(first=st.floats(0.2, 1.0), second=st.floats(0.2, 1.0))
def test_the_lower_clock_of_two_workers_on_one_gpu_applies_until_released(first: float, second: float) -> None:
    node = simulated(1)
    workers = node.worker(0, name="a"), node.worker(0, name="b")
    for worker, share in zip(workers, (first, second), strict=True):
        node.apply(worker, share)

    def expected(share: float) -> int | None:
        return None if share >= 1.0 - 1e-6 else at(share)

    assert node.locks == [expected(min(first, second))]
    node.apply(workers[0], 1.0)
    assert node.locks == [expected(second)]


def test_a_killed_workers_clock_is_removed_when_its_lease_expires() -> None:
    node = simulated()
    node.apply(node.worker(0), 0.6)
    assert node.locks[0] == at(0.6)
    node.now_s += LEASE_S + 1
    node.advance()
    assert node.locks == [None, None]
    assert node.node.cap_controller.leases() == ()


def test_the_expired_lease_of_another_holder_sets_the_safe_clock() -> None:
    node = simulated()
    node.request("PUT", "/v1/caps", {"holder": "planner", "lease_s": 10.0, "clock_share": 0.8})
    node.advance()
    assert node.locks == [at(0.8)] * 2
    node.now_s += 11
    node.advance()
    assert node.locks == [at(SAFE)] * 2


def test_a_worker_that_renews_its_lease_keeps_its_clock() -> None:
    node = simulated()
    clock = node.worker(0)
    node.apply(clock, 0.6)
    for _ in range(8):
        wait_s = clock.step()
        assert wait_s <= LEASE_S / 3
        node.now_s += wait_s
        node.advance()
        assert node.locks[0] == at(0.6)


@pytest.mark.parametrize("kept", [True, False])
def test_a_restarted_agent_applies_the_workers_clock_again(tmp_path: Path, *, kept: bool) -> None:
    node = simulated(state=tmp_path / "state" if kept else None)
    clock = node.worker(0)
    node.apply(clock, 0.6)
    node.start()
    assert [lease.holder for lease in node.node.cap_controller.leases()] == (["w"] if kept else [])
    clock.step()
    node.advance()
    assert node.locks[0] == at(0.6)
    if kept:
        node.start()
        node.now_s += LEASE_S + 1  # the worker does not renew
        node.advance()
        assert node.locks == [None, None]
        assert not (tmp_path / "state").exists()


def test_the_power_guards_lower_clock_applies() -> None:
    node = simulated()
    clock = node.worker(0)
    node.apply(clock, 0.8)
    node.node.set_clocks(NodeClocks(0.4, 0.4))
    node.advance()
    clock.step()
    assert node.locks == [at(0.4)] * 2
    assert clock.clock_enforced == pytest.approx(at(0.4) / FULL_MHZ)


def test_nvml_clocks_are_locked_and_reset(tmp_path: Path) -> None:
    driver = StubDriver(tmp_path / "node")
    driver.use()
    node = Node(NvmlDriver())
    clock = node.worker(1)
    node.apply(clock, 0.75)
    assert driver.locks_mhz == [0, 1485]
    assert clock.clock_enforced == 0.75
    node.now_s += LEASE_S + 1
    node.advance()
    assert driver.locks_mhz == [0, 0]
    node.gpus.close()


def test_an_unreachable_agent_is_logged_once_and_retried_with_backoff(caplog: pytest.LogCaptureFixture) -> None:
    node = simulated()
    node.down = True
    clock = node.worker(0)
    clock.follow({"clock": 0.75})
    waits_s = [clock.step() for _ in range(6)]
    assert waits_s == [1.0, 2.0, 4.0, 8.0, LEASE_S / 3, LEASE_S / 3]
    assert [record.levelno for record in caplog.records if record.name == "fleetwright.clock"] == [logging.WARNING]
    node.down = False
    clock.step()
    node.advance()
    assert node.locks[0] == 1485


@pytest.mark.parametrize("config", [{}, None, {"clock": "half"}, {"clock": 0.0}, {"clock": 7}, {"clock": True}, "text"])
def test_a_config_without_a_valid_clock_requests_the_full_clock(config: Any) -> None:
    node = simulated()
    clock = node.worker(0)
    node.apply(clock, 0.6)
    clock.follow(config)
    clock.step()
    node.advance()
    assert node.locks == [None, None]


def test_a_worker_without_gpus_sends_no_cap_request() -> None:
    node = simulated()
    node.apply(node.worker(), 0.6)  # an empty list of GPUs must not mean all GPUs
    assert set(node.requests) == {"GET"}
    assert node.locks == [None, None]


@pytest.mark.parametrize(
    "environment", [{}, {"FLEETWRIGHT_AGENT": ""}, {"FLEETWRIGHT_AGENT": "ftp://x"}, {"FLEETWRIGHT_AGENT": "unix:"}]
)
def test_the_replica_clock_is_off_without_an_agent_address(environment: dict[str, str]) -> None:
    clock = ReplicaClock(environment=environment)
    clock.follow({"clock": 0.5})
    assert clock.clock_enforced is None
    assert clock._thread is None
    clock.close()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def over_unix(tmp_path: Path, token: Path) -> Iterator[tuple[SimulatedDriver, dict[str, str]]]:
    """An agent on a Unix socket, in real time, and the environment of its workers."""
    path = tmp_path / "agent.sock"
    with serving(unix_listener(path, mode=0o600)) as gpus:
        yield (
            gpus,
            {
                "FLEETWRIGHT_AGENT": f"unix:{path}",
                "FLEETWRIGHT_AGENT_TOKEN_FILE": str(token),
                "CUDA_VISIBLE_DEVICES": "1",
            },
        )


def locks_of(gpus: SimulatedDriver) -> list[int | None]:
    return [board.lock_mhz for board in gpus.boards.values()]


def test_the_clock_thread_sets_and_releases_the_clock_over_a_unix_socket(
    over_unix: tuple[SimulatedDriver, dict[str, str]],
) -> None:
    gpus, environment = over_unix
    clock = ReplicaClock(environment=environment, local=lambda: None)
    clock.follow({"clock": 0.75})
    wait_for(lambda: clock.clock_enforced, lambda share: share == 0.75, what="read-back")
    assert locks_of(gpus) == [None, 1485]
    clock.close(wait_s=60.0)
    wait_for(lambda: locks_of(gpus), lambda locks: locks == [None, None], what="release of the worker's clock")


def test_a_killed_worker_processs_clock_is_removed_over_a_unix_socket(
    over_unix: tuple[SimulatedDriver, dict[str, str]],
) -> None:
    gpus, environment = over_unix
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", WORKER, "0.5", "3.0"]
    with subprocess.Popen(argv, env=environment | path, cwd=ROOT) as worker:
        try:
            wait_for(lambda: locks_of(gpus), lambda locks: locks == [None, 990], what="the worker's clock")
        finally:
            os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: locks_of(gpus), lambda locks: locks == [None, None], what="end of the lease")


def test_importing_the_replica_clock_loads_no_third_party_packages() -> None:
    heavy = "{'numpy', 'pydantic', 'httpx', 'structlog', 'fastapi', 'ray'}"
    code = f"import sys, fleetwright.engines.replica_clock; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_mutual_tls_accepts_only_certificates_of_the_authority(tmp_path: Path) -> None:
    authority, other_authority = Authority.create(tmp_path / "ours"), Authority.create(tmp_path / "theirs")
    shown = authority.issue("agent", common_name="agent", hosts=[LOOPBACK])
    listener = socket.create_server((LOOPBACK, 0))
    address = f"https://{LOOPBACK}:{listener.getsockname()[1]}"

    def access(of: Authority) -> AgentAccess:
        pair = of.issue("worker", common_name="worker")
        return AgentAccess(
            address=address, authority=authority.cert_path, certificate=pair.cert_path, key=pair.key_path
        )

    with serving(listener, token=None, tls=ServerTls(shown.cert_path, shown.key_path, authority.cert_path)):
        assert len(access(authority).request("GET", "/v1/gpus")["gpus"]) == 2
        with pytest.raises(AgentError):
            access(other_authority).request("GET", "/v1/gpus")


def test_a_wrong_token_is_logged_and_sets_no_clock(
    over_unix: tuple[SimulatedDriver, dict[str, str]], token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gpus, environment = over_unix
    token.write_text("another secret")
    clock = ReplicaClock(environment=environment, local=lambda: None)
    clock._thread = NoThread()  # type: ignore[assignment]
    clock.follow({"clock": 0.5})
    clock.step()
    assert "401: expected the bearer token" in caplog.text
    assert locks_of(gpus) == [None, None]
