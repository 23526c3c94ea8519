"""Caps over the stub driver, from request to read-back, with all failures.  The test sets the time."""

import json
from pathlib import Path

import pytest

from deploy.node_agent.gpu.cap_state_machine import MAX_TRIES, CapStatus, Event
from deploy.node_agent.gpu.errors import NotSupportedError, OutOfRangeError
from deploy.node_agent.gpu.gpu_state import CapKind
from deploy.node_agent.gpu.interface import Caps
from deploy.node_agent.gpu.nvml import NvmlDriver
from deploy.node_agent.gpu.state_file import StateFileError
from tests.deploy.node_agent.gpu.conftest import CapHarness
from tests.deploy.node_agent.gpu.stub_driver import StubDriver


def agree(cap_harness: CapHarness, caps: Caps) -> bool:
    """The caps are planned, applied and enforced on all GPUs."""
    return all(
        s.planned == s.applied == caps and held(s.enforced, caps) for s in cap_harness.cap_controller.gpu_states()
    )


def held(enforced: Caps, caps: Caps) -> bool:
    return all(commanded is None or commanded == found for commanded, found in zip(caps, enforced, strict=True))


def test_requested_caps_are_planned_applied_and_enforced(driver: StubDriver, cap_harness: CapHarness) -> None:
    cap_harness.reconcile()
    assert driver.gpu(0).power_writes == driver.gpu(0).clock_writes == 0  # no request, no write
    cap_harness.request(power_limit_w=450.0, clock_mhz=1500)
    (first, _second) = cap_harness.cap_controller.gpu_states()
    assert first.planned == Caps(450.0, 1500)
    assert first.applied == Caps()
    cap_harness.reconcile(2)
    assert agree(cap_harness, Caps(450.0, 1500))
    assert driver.limits_w == [450.0, 450.0]
    assert driver.locks_mhz == [1500, 1500]
    cap_harness.reconcile(10)
    assert driver.gpu(0).power_writes == driver.gpu(0).clock_writes == 1  # read back: no further write


def test_a_clock_between_two_steps_is_rounded_down(driver: StubDriver, cap_harness: CapHarness) -> None:
    cap_harness.request(clock_mhz=1499)
    cap_harness.reconcile()
    assert driver.locks_mhz == [1485, 1485]


def test_the_lowest_cap_of_several_holders_applies_until_its_release(
    driver: StubDriver, cap_harness: CapHarness
) -> None:
    cap_harness.request("planner", power_limit_w=500.0)
    cap_harness.request("operator", power_limit_w=400.0, uuids=driver.uuids[:1])
    cap_harness.reconcile(2)
    assert driver.limits_w == [400.0, 500.0]
    assert cap_harness.cap_controller.release("operator")
    cap_harness.reconcile(2)
    assert driver.limits_w == [500.0, 500.0]
    assert not cap_harness.cap_controller.release("operator")
    assert cap_harness.cap_controller.release("planner")
    cap_harness.reconcile(2)
    assert driver.limits_w == [700.0, 700.0]
    assert [cap_state.state for s in cap_harness.cap_controller.gpu_states() for cap_state in s.cap_states] == [
        CapStatus.FREE
    ] * 4


def test_an_expired_lease_falls_to_the_safe_caps_and_never_raises_a_cap(driver: StubDriver, nvml: NvmlDriver) -> None:
    cap_harness = CapHarness(nvml, safe_share=0.5)
    cap_harness.request(clock_mhz=1800, lease_s=10.0)
    cap_harness.request("low", clock_mhz=600, uuids=driver.uuids[1:], lease_s=10.0)
    cap_harness.reconcile(2)
    assert driver.locks_mhz == [1800, 600]
    cap_harness.now_s += 10.0
    cap_harness.reconcile(2)
    assert driver.locks_mhz == [990, 600]
    cap_harness.request(clock_mhz=1800, lease_s=10.0)
    cap_harness.reconcile(2)
    assert driver.locks_mhz == [1800, 600]


def test_caps_never_exceed_the_original_limit(driver: StubDriver, nvml: NvmlDriver) -> None:
    driver.gpu(0).limit_mw = 350_000
    cap_harness = CapHarness(nvml)
    cap_harness.request(power_limit_w=600.0)
    cap_harness.reconcile(2)
    assert driver.limits_w == [350.0, 600.0]
    cap_harness.cap_controller.restore()
    assert driver.limits_w == [350.0, 700.0]


def test_an_out_of_band_limit_does_not_count_as_the_original_limit(driver: StubDriver, nvml: NvmlDriver) -> None:
    driver.gpu(0).out_of_band_mw = 300_000
    cap_harness = CapHarness(nvml)
    cap_harness.request(power_limit_w=250.0)
    cap_harness.reconcile(2)
    assert cap_harness.cap_controller.gpu_states()[0].enforced.power_limit_w == 250.0
    assert cap_harness.cap_controller.restore()
    assert driver.limits_w == [700.0, 700.0]
    assert nvml.enforced(driver.uuids[0]).power_limit_w == 300.0


@pytest.mark.parametrize("ignored", [1, 3])
def test_an_ignored_power_limit_is_detected_and_written_again(
    driver: StubDriver, cap_harness: CapHarness, ignored: int
) -> None:
    driver.state.ignore_power = 2 * ignored
    cap_harness.request(power_limit_w=450.0)
    cap_harness.reconcile(60)
    assert agree(cap_harness, Caps(450.0))
    assert cap_harness.cap_controller.counts[CapKind.POWER, Event.IGNORED] == 2 * ignored
    assert driver.gpu(0).power_writes == ignored + 1


def test_an_ignored_clock_lock_is_detected_by_the_clock_of_a_busy_gpu(
    driver: StubDriver, cap_harness: CapHarness
) -> None:
    driver.state.ignore_clocks = 2
    cap_harness.request(clock_mhz=1500)
    cap_harness.reconcile(3)
    assert cap_harness.cap_controller.gpu_states()[0].enforced.clock_mhz == 1980
    cap_harness.reconcile(20)
    assert agree(cap_harness, Caps(None, 1500))
    assert driver.locks_mhz == [1500, 1500]
    assert (
        cap_harness.cap_controller.counts[CapKind.CLOCK, Event.IGNORED]
        + cap_harness.cap_controller.counts[CapKind.CLOCK, Event.CHANGED]
        == 2
    )


def test_a_driver_that_ignores_all_writes_gets_a_bounded_number_of_them(
    driver: StubDriver, cap_harness: CapHarness
) -> None:
    driver.state.ignore_power = 10**6
    cap_harness.request(power_limit_w=450.0, uuids=driver.uuids[:1], lease_s=1e6)
    cap_harness.reconcile(1000, every_s=1.0)
    # First, then after 1, 2, 4 ... 60 s, then once a minute.
    assert driver.gpu(0).power_writes <= MAX_TRIES + 1 + 1000 / 60
    assert cap_harness.cap_controller.gpu_states()[0].cap_states[CapKind.POWER].state is CapStatus.ABANDONED
    driver.state.ignore_power = 0
    cap_harness.reconcile(61, every_s=1.0)
    assert driver.limits_w[0] == 450.0
    assert cap_harness.cap_controller.gpu_states()[0].cap_states[CapKind.POWER].state is CapStatus.HELD


def test_a_raised_limit_of_another_writer_is_lowered_and_a_lower_one_stays(
    driver: StubDriver, cap_harness: CapHarness
) -> None:
    cap_harness.request(power_limit_w=450.0)
    cap_harness.reconcile(4)
    driver.gpu(0).limit_mw = 650_000
    driver.gpu(1).limit_mw = 300_000
    cap_harness.reconcile(2)
    assert driver.limits_w == [450.0, 300.0]
    assert cap_harness.cap_controller.counts[CapKind.POWER, Event.CHANGED] == 1


def test_all_caps_are_written_again_after_a_driver_reload(driver: StubDriver, cap_harness: CapHarness) -> None:
    cap_harness.request(power_limit_w=450.0, clock_mhz=1500)
    cap_harness.reconcile(4)
    driver.reload()
    cap_harness.reconcile(1)
    assert driver.limits_w == [450.0, 450.0]
    assert driver.locks_mhz == [1500, 1500]
    assert cap_harness.cap_controller.counts[CapKind.CLOCK, Event.CLEARED] == 2
    assert cap_harness.gpus.epoch == 2


def test_a_gpu_that_returns_is_locked_again(driver: StubDriver, cap_harness: CapHarness) -> None:
    cap_harness.request(clock_mhz=1500)
    cap_harness.reconcile(2)
    driver.gpu(0).lost = 1
    cap_harness.reconcile()
    assert [s.lost for s in cap_harness.cap_controller.gpu_states()] == [True, False]
    assert "GPU is lost" in str(cap_harness.cap_controller.gpu_states()[0].error)
    driver.gpu(0).lost = 0
    driver.gpu(0).lock_high = 0  # the GPU was reset while idle
    driver.gpu(0).busy = 0
    cap_harness.reconcile(2)
    assert driver.locks_mhz == [1500, 1500]


def test_without_permission_the_caps_are_refused_and_reported(driver: StubDriver, cap_harness: CapHarness) -> None:
    driver.state.refuse = 1
    cap_harness.request(power_limit_w=450.0, lease_s=1e6)
    cap_harness.reconcile(100, every_s=1.0)
    state = cap_harness.cap_controller.gpu_states()[0]
    assert state.cap_states[CapKind.POWER].state is CapStatus.REFUSED
    assert "Insufficient Permissions" in str(state.error)
    assert (state.planned, state.applied, state.enforced.power_limit_w) == (Caps(450.0), Caps(), 700.0)
    assert cap_harness.cap_controller.counts[CapKind.POWER, Event.REFUSED] == 4  # two GPUs, once a minute
    driver.state.refuse = 0
    cap_harness.reconcile(61, every_s=1.0)
    assert agree(cap_harness, Caps(450.0))


def test_an_observer_writes_nothing(driver: StubDriver, nvml: NvmlDriver, tmp_path: Path) -> None:
    cap_harness = CapHarness(nvml, memory=tmp_path / "state.json", acting=False)
    cap_harness.request(power_limit_w=450.0)
    cap_harness.reconcile(10)
    assert cap_harness.cap_controller.gpu_states()[0].planned == Caps(450.0)
    assert cap_harness.cap_controller.restore()
    assert driver.gpu(0).power_writes == 0
    assert not (tmp_path / "state.json").exists()


def test_requests_outside_the_range_are_refused_by_field_and_not_stored(
    driver: StubDriver, cap_harness: CapHarness
) -> None:
    with pytest.raises(OutOfRangeError, match=r"power_limit_w: must be from 200 to 700 on .*, got 100"):
        cap_harness.request(power_limit_w=100.0)
    with pytest.raises(OutOfRangeError, match=r"clock_mhz: must be from 345 to 1980 on .*, got 2000"):
        cap_harness.request(clock_mhz=2000)
    with pytest.raises(OutOfRangeError, match=r"gpus: no 'GPU-x' here; known: "):
        cap_harness.request(power_limit_w=400.0, uuids=(driver.uuids[0], "GPU-x"))
    assert cap_harness.cap_controller.leases() == ()
    driver.gpu(0).no_clocks = 1
    cap_harness.restart()
    with pytest.raises(NotSupportedError, match=r"clock_mhz: the clock of .* cannot be locked by nvml"):
        cap_harness.request(clock_mhz=1500)


def test_original_caps_are_restored_at_the_end(driver: StubDriver, cap_harness: CapHarness) -> None:
    driver.gpu(1).limit_mw = 600_000
    cap_harness.restart()
    cap_harness.request(power_limit_w=450.0, clock_mhz=1500)
    cap_harness.reconcile(2)
    assert cap_harness.memory is not None
    assert cap_harness.memory.stat().st_mode & 0o777 == 0o600
    driver.state.ignore_power = 1
    assert cap_harness.cap_controller.restore()
    assert driver.limits_w == [700.0, 600.0]
    assert driver.locks_mhz == [0, 0]
    assert not cap_harness.memory.exists()


def test_the_next_agent_restores_caps_that_could_not_be_restored(driver: StubDriver, cap_harness: CapHarness) -> None:
    cap_harness.request(power_limit_w=450.0)
    cap_harness.reconcile(2)
    driver.state.refuse = 1
    assert not cap_harness.cap_controller.restore()
    assert cap_harness.memory is not None
    assert cap_harness.memory.exists()
    driver.state.refuse = 0
    cap_harness.restart().restore()
    assert driver.limits_w == [700.0, 700.0]


def test_the_next_agent_continues_the_leases_of_a_killed_one(driver: StubDriver, cap_harness: CapHarness) -> None:
    cap_harness.request(power_limit_w=450.0, clock_mhz=1500, lease_s=60.0)
    cap_harness.reconcile(4)
    cap_harness.restart()  # the previous agent was killed
    cap_harness.reconcile(2)
    assert agree(cap_harness, Caps(450.0, 1500))
    assert cap_harness.cap_controller.restore()
    assert driver.limits_w == [700.0, 700.0]  # not the 450 W at its start
    assert driver.locks_mhz == [0, 0]


def test_leases_of_another_boot_are_dropped_and_original_caps_kept(driver: StubDriver, cap_harness: CapHarness) -> None:
    cap_harness.request(power_limit_w=450.0)
    cap_harness.reconcile(2)
    cap_harness.restart(boot="boot-2")
    assert cap_harness.cap_controller.leases() == ()
    cap_harness.reconcile(2)
    assert driver.limits_w == [700.0, 700.0]


def test_fields_that_a_newer_agent_added_to_the_state_file_are_ignored(
    driver: StubDriver, cap_harness: CapHarness
) -> None:
    assert cap_harness.memory is not None
    cap_harness.request(power_limit_w=450.0)
    cap_harness.reconcile(2)
    state = json.loads(cap_harness.memory.read_text()) | {"added_later": 1}
    leases = [lease | {"added_later": 1} for lease in state["leases"]]
    assert leases
    cap_harness.memory.write_text(json.dumps(state | {"leases": leases}))
    cap_harness.restart()
    assert [lease.holder for lease in cap_harness.cap_controller.leases()] == ["h", "h"]  # one for each GPU
    assert cap_harness.cap_controller.restore()
    assert driver.limits_w == [700.0, 700.0]


def test_an_unreadable_state_file_prevents_the_start(cap_harness: CapHarness) -> None:
    assert cap_harness.memory is not None
    cap_harness.memory.write_text(json.dumps({"version": 7}))
    with pytest.raises(StateFileError, match="check the caps of each GPU, then remove the file"):
        cap_harness.restart()


def test_no_cap_is_set_that_could_not_be_restored(driver: StubDriver, nvml: NvmlDriver, tmp_path: Path) -> None:
    cap_harness = CapHarness(nvml, memory=tmp_path / "none" / "state.json")
    cap_harness.request(power_limit_w=450.0)
    cap_harness.reconcile(4)
    assert driver.limits_w == [700.0, 700.0]
    assert "No such file" in str(cap_harness.cap_controller.gpu_states()[0].error)
