"""Eight GPUs of one node, one of them faulty: the others get their caps, and their original caps are restored."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.node_agent.gpu import state_file
from deploy.node_agent.gpu.cap_controller import CapController
from deploy.node_agent.gpu.cap_state_machine import CapStatus
from deploy.node_agent.gpu.errors import DriverGoneError, GpuError, GpuLostError, NoPermissionError
from deploy.node_agent.gpu.gpu_state import CapKind
from deploy.node_agent.gpu.handles import RETRY_CALLS, HandleDriver
from deploy.node_agent.gpu.interface import Caps, GpuIdentity
from deploy.node_agent.gpu.node import GpuNode, WorkloadPhases
from deploy.node_agent.gpu.simulated import SimulatedDriver
from fleet.gpus import builtin_gpus
from power.controls import NodeClocks
from tests.deploy.node_agent.gpu.conftest import CapHarness

SPEC = builtin_gpus().get("H100-SXM")
FREE = (SPEC.tdp_w, None)
BAD = "GPU-sim-0"  # the first in each poll


@dataclass(slots=True)
class Faulty(SimulatedDriver):
    """One GPU raises the test's error in the chosen call."""

    broken: dict[str, Exception] = field(default_factory=dict)

    def _fails(self, uuid: str, what: str) -> None:
        if uuid == BAD and what in self.broken:
            raise self.broken[what]

    def limits(self, uuid: str) -> Any:
        self._fails(uuid, "limits")
        return SimulatedDriver.limits(self, uuid)

    def read(self, uuid: str) -> Any:
        self._fails(uuid, "read")
        return SimulatedDriver.read(self, uuid)

    def set_power_limit(self, uuid: str, watts: float | None) -> None:
        self._fails(uuid, "set")
        SimulatedDriver.set_power_limit(self, uuid, watts)

    def held(self) -> list[tuple[float, int | None]]:
        return [(board.limit_w, board.lock_mhz) for board in self.boards.values()]


@pytest.fixture
def gpus() -> Faulty:
    return Faulty(spec=SPEC, count=8, now_s=lambda: 0.0, rng=np.random.default_rng(0))


@pytest.fixture
def eight(gpus: Faulty, tmp_path: Path) -> CapHarness:
    return CapHarness(gpus, memory=tmp_path / "state.json")


ERRORS = [GpuLostError("off the bus"), NoPermissionError("no"), ValueError("watts: 'N/A'"), KeyError("power_cap")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("what", ["read", "set"])
def test_seven_gpus_are_capped_and_restored_beside_a_faulty_one(
    eight: CapHarness, gpus: Faulty, what: str, error: Exception
) -> None:
    gpus.broken[what] = error
    eight.request(power_limit_w=450.0, clock_mhz=1500)
    eight.reconcile(3)
    assert gpus.held()[1:] == [(450.0, 1500)] * 7
    assert str(error) in str(eight.cap_controller.gpu_states()[0].error)
    eight.cap_controller.restore()
    assert gpus.held()[1:] == [FREE] * 7


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_gpu_that_refuses_the_restore_does_not_affect_the_others(
    eight: CapHarness, gpus: Faulty, error: Exception
) -> None:
    eight.request(power_limit_w=450.0, clock_mhz=1500)
    eight.reconcile(3)
    gpus.broken["set"] = error
    assert not eight.cap_controller.restore()
    assert gpus.held() == [(450.0, None)] + [FREE] * 7
    assert eight.memory is not None
    assert eight.memory.exists(), "for the next agent"
    gpus.broken.clear()
    assert eight.restart().restore()
    assert gpus.held() == [FREE] * 8
    assert not eight.memory.exists()


def test_a_gpu_that_stops_refusing_is_restored_without_a_retry_delay(eight: CapHarness, gpus: Faulty) -> None:
    eight.request(power_limit_w=450.0)
    eight.reconcile(3)
    gpus.broken["set"] = NoPermissionError("busy")
    eight.request(power_limit_w=400.0)
    eight.reconcile(1)
    assert eight.cap_controller.gpu_states()[0].cap_states[CapKind.POWER].state is CapStatus.REFUSED
    del gpus.broken["set"]
    assert eight.cap_controller.restore(), "the restore does not wait for the retry period"
    assert gpus.held() == [FREE] * 8


def test_a_gpu_that_cannot_be_read_is_restored_without_confirmation(eight: CapHarness, gpus: Faulty) -> None:
    eight.request(power_limit_w=450.0)
    eight.reconcile(3)
    gpus.broken["read"] = ValueError("watts: 'N/A'")
    assert not eight.cap_controller.restore(), "the restored caps could not be read back"
    assert gpus.held() == [FREE] * 8
    assert eight.memory is not None
    assert eight.memory.exists()


def test_a_gpu_that_is_lost_at_the_start_joins_once_it_responds(gpus: Faulty, tmp_path: Path) -> None:
    gpus.broken["limits"] = GpuLostError("off the bus")
    late = CapHarness(gpus, memory=tmp_path / "state.json")
    late.request(power_limit_w=450.0, lease_s=1e6)
    late.reconcile(3)
    assert gpus.held() == [FREE] + [(450.0, None)] * 7
    with pytest.raises(GpuLostError, match=f"{BAD} did not respond yet: off the bus"):
        late.request(power_limit_w=450.0, uuids=(BAD,))
    gpus.broken.clear()
    late.reconcile(1)
    late.request(power_limit_w=450.0, lease_s=1e6)
    late.reconcile(3)
    assert gpus.held() == [(450.0, None)] * 8
    assert late.cap_controller.restore()
    assert gpus.held() == [FREE] * 8


def test_the_start_fails_if_no_gpu_responds(gpus: Faulty) -> None:
    for board in gpus.boards.values():
        board.lost = True
    with pytest.raises(DriverGoneError, match="has fallen off the bus"):
        CapHarness(gpus)


def test_commands_of_the_guard_reach_the_other_gpus(gpus: Faulty) -> None:
    gpus.broken["limits"] = GpuLostError("off the bus")
    now_s = 100.0
    node = GpuNode(cap_controller=CapHarness(gpus).cap_controller, phases=WorkloadPhases(), now_s=lambda: now_s)
    node.set_clocks(NodeClocks(0.6, 0.6))
    node.cap_controller.reconcile()
    assert {lock for _limit, lock in gpus.held()[1:]} == {1185}
    node.brake(on=True)
    node.cap_controller.reconcile()
    assert {lock for _limit, lock in gpus.held()[1:]} == {gpus.limits("GPU-sim-1").brake_clock_mhz}


def test_a_gpu_that_never_responded_counts_with_its_maximum_power(gpus: Faulty) -> None:
    def drawn_w() -> float:
        node = GpuNode(cap_controller=CapHarness(gpus).cap_controller, phases=WorkloadPhases(), now_s=lambda: 1000.0)
        node.cap_controller.reconcile()
        return node.read().power_w

    all_w = drawn_w()
    gpus.broken["limits"] = GpuLostError("off the bus")
    assert drawn_w() >= all_w


def test_a_full_disk_prevents_neither_new_caps_nor_the_restore(
    eight: CapHarness, gpus: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    eight.request(power_limit_w=450.0)
    eight.reconcile(3)
    monkeypatch.setattr(state_file, "_replace", full)
    eight.request(power_limit_w=400.0)
    eight.reconcile(3)
    assert gpus.held() == [(400.0, None)] * 8, "the original caps are already in the file"
    assert eight.cap_controller.restore()
    assert gpus.held() == [FREE] * 8
    assert eight.memory is not None
    assert not eight.memory.exists()


def test_no_cap_is_set_if_the_disk_is_full_from_the_start(
    eight: CapHarness, gpus: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_file, "_replace", full)
    eight.request(power_limit_w=450.0)
    eight.reconcile(3)
    assert gpus.held() == [FREE] * 8
    assert "No space left" in str(eight.cap_controller.gpu_states()[0].error)
    assert eight.cap_controller.restore()


def full(*_args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_state_file_is_removed_without_requests_and_at_the_end(eight: CapHarness) -> None:
    assert eight.memory is not None
    eight.request(power_limit_w=450.0)
    eight.reconcile(3)
    assert eight.memory.exists()
    eight.cap_controller.release("h")
    eight.reconcile(3)
    assert not eight.memory.exists()
    assert eight.cap_controller.restore()
    assert not eight.memory.exists()


def test_the_state_file_of_a_killed_agent_is_removed_by_the_next_one(eight: CapHarness) -> None:
    eight.request(power_limit_w=450.0)
    eight.reconcile(3)
    eight.cap_controller.release("h")
    eight.cap_controller.reconcile()  # the agent is killed between the write and the read-back
    assert eight.memory is not None
    assert eight.restart().restore()
    assert not eight.memory.exists()


def test_the_original_cap_of_a_missing_gpu_is_restored_when_it_returns(eight: CapHarness, gpus: Faulty) -> None:
    gpus.boards[BAD].limit_w = 600.0
    eight.restart()
    eight.request(power_limit_w=450.0)
    eight.reconcile(3)
    gone = gpus.boards.pop(BAD)
    assert eight.restart().restore()
    gpus.boards = {BAD: gone} | gpus.boards
    assert gpus.boards[BAD].limit_w == 450.0
    assert eight.restart().restore()
    assert gpus.boards[BAD].limit_w == 600.0
    assert eight.memory is not None
    assert not eight.memory.exists()


def test_an_ignored_release_of_an_earlier_cap_is_not_a_limit_of_another_writer(eight: CapHarness, gpus: Faulty) -> None:
    eight.request(power_limit_w=450.0, lease_s=0.5)
    eight.reconcile(3)
    eight.restart(boot="another")  # its leases are dropped
    gpus.ignored_share = 1.0
    eight.reconcile(2)
    assert all(state.touched for state in eight.cap_controller.gpu_states())
    gpus.ignored_share = 0.0
    eight.reconcile(20)
    assert gpus.held() == [FREE] * 8


def test_a_limit_set_by_others_before_the_first_cap_is_the_one_restored(eight: CapHarness, gpus: Faulty) -> None:
    gpus.boards[BAD].limit_w = 500.0
    eight.reconcile(3)
    eight.request(power_limit_w=450.0)
    eight.reconcile(3)
    assert {state.planned for state in eight.cap_controller.gpu_states()} == {Caps(450.0)}
    assert eight.cap_controller.restore()
    assert gpus.held() == [(500.0, None)] + [FREE] * 7


def test_the_driver_is_closed_even_if_the_restore_fails(gpus: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    def broken(_keeper: CapController) -> bool:
        raise RuntimeError("unexpected")

    node = GpuNode(cap_controller=CapHarness(gpus).cap_controller, phases=WorkloadPhases())
    monkeypatch.setattr(Faulty, "close", lambda _gpus: closed.append(True))
    monkeypatch.setattr(CapController, "restore", broken)
    with pytest.raises(RuntimeError):
        node.stop()
    assert closed == [True]


def handles(loads: list[int], answer: Callable[[str], int]) -> tuple[HandleDriver, Callable[[str], Any]]:
    class Library(HandleDriver):
        def close(self) -> None:
            """Do nothing; the library has no open handles."""

        def _opened(self) -> list[tuple[GpuIdentity, str]]:
            loads.append(1)
            return [(GpuIdentity(uuid=name, name=name), name) for name in ("bad", "good")]

        def _translated(self, error: Any) -> GpuError:
            return DriverGoneError(str(error))

    found = Library(ValueError)
    return found, lambda uuid: found._call(uuid, answer)


def test_a_gpu_with_invalid_responses_does_not_reopen_the_driver_at_every_poll() -> None:
    """Every load writes the caps of all other GPUs again."""

    def answer(handle: str) -> int:
        if handle == "bad":
            raise ValueError("unknown error")
        return 1

    loads: list[int] = []
    found, call = handles(loads, answer)
    polls = 3 * RETRY_CALLS
    for _ in range(polls):
        with pytest.raises(GpuError, match="unknown error"):
            call("bad")
        assert call("good") == 1
    assert len(loads) == found.epoch <= 2 + polls / RETRY_CALLS


def test_a_driver_that_returns_is_reopened_for_the_next_call() -> None:
    stale = {"bad", "good"}

    def answer(handle: str) -> int:
        if handle in stale:
            raise ValueError("uninitialized")
        return 1

    loads: list[int] = []
    _found, call = handles(loads, answer)
    with pytest.raises(GpuError):
        call("bad")
    stale.clear()
    assert call("good") == 1
    assert call("bad") == 1
    stale.add("bad")
    with pytest.raises(GpuError):
        call("bad")
    assert len(loads) == 3, "a success in between allows another load"
