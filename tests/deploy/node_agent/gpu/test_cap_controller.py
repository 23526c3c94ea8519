"""Caps over the stub driver, from order to read-back: everything that goes wrong on the way.  Time is given."""

import json
from pathlib import Path

import pytest

from deploy.node_agent.gpu.cap_state_machine import MAX_TRIES, CapStatus, Event
from deploy.node_agent.gpu.errors import NotSupportedError, OutOfRangeError
from deploy.node_agent.gpu.gpu_state import CapKind
from deploy.node_agent.gpu.interface import Caps
from deploy.node_agent.gpu.nvml import NvmlDriver
from deploy.node_agent.gpu.state_file import StateFileError
from tests.deploy.node_agent.gpu.conftest import Keeping
from tests.deploy.node_agent.gpu.stub_driver import StubDriver


def agree(keeping: Keeping, caps: Caps) -> bool:
    """Planned, applied and enforced on all GPUs."""
    return all(s.planned == s.applied == caps and held(s.enforced, caps) for s in keeping.cap_controller.gpu_states())


def held(enforced: Caps, caps: Caps) -> bool:
    return all(commanded is None or commanded == found for commanded, found in zip(caps, enforced, strict=True))


def test_an_order_is_planned_applied_and_enforced(driver: StubDriver, keeping: Keeping) -> None:
    keeping.rounds()
    assert driver.gpu(0).power_writes == driver.gpu(0).clock_writes == 0  # no request, no write
    keeping.order(power_limit_w=450.0, clock_mhz=1500)
    (first, _second) = keeping.cap_controller.gpu_states()
    assert first.planned == Caps(450.0, 1500)
    assert first.applied == Caps()
    keeping.rounds(2)
    assert agree(keeping, Caps(450.0, 1500))
    assert driver.limits_w == [450.0, 450.0]
    assert driver.locks_mhz == [1500, 1500]
    keeping.rounds(10)
    assert driver.gpu(0).power_writes == driver.gpu(0).clock_writes == 1  # read back: no further write


def test_a_clock_between_two_steps_is_rounded_down(driver: StubDriver, keeping: Keeping) -> None:
    keeping.order(clock_mhz=1499)
    keeping.rounds()
    assert driver.locks_mhz == [1485, 1485]


def test_the_lowest_of_several_holders_applies_and_each_may_release(driver: StubDriver, keeping: Keeping) -> None:
    keeping.order("planner", power_limit_w=500.0)
    keeping.order("operator", power_limit_w=400.0, uuids=driver.uuids[:1])
    keeping.rounds(2)
    assert driver.limits_w == [400.0, 500.0]
    assert keeping.cap_controller.release("operator")
    keeping.rounds(2)
    assert driver.limits_w == [500.0, 500.0]
    assert not keeping.cap_controller.release("operator")
    assert keeping.cap_controller.release("planner")
    keeping.rounds(2)
    assert driver.limits_w == [700.0, 700.0]
    assert [cap_state.state for s in keeping.cap_controller.gpu_states() for cap_state in s.cap_states] == [
        CapStatus.FREE
    ] * 4


def test_an_order_that_lapses_falls_to_the_safe_caps_and_never_speeds_up(driver: StubDriver, nvml: NvmlDriver) -> None:
    keeping = Keeping(nvml, safe_share=0.5)
    keeping.order(clock_mhz=1800, lease_s=10.0)
    keeping.order("low", clock_mhz=600, uuids=driver.uuids[1:], lease_s=10.0)
    keeping.rounds(2)
    assert driver.locks_mhz == [1800, 600]
    keeping.now_s += 10.0
    keeping.rounds(2)
    assert driver.locks_mhz == [990, 600]
    keeping.order(clock_mhz=1800, lease_s=10.0)
    keeping.rounds(2)
    assert driver.locks_mhz == [1800, 600]


def test_never_above_what_was_found(driver: StubDriver, nvml: NvmlDriver) -> None:
    driver.gpu(0).limit_mw = 350_000
    keeping = Keeping(nvml)
    keeping.order(power_limit_w=600.0)
    keeping.rounds(2)
    assert driver.limits_w == [350.0, 600.0]
    keeping.cap_controller.restore()
    assert driver.limits_w == [350.0, 700.0]


def test_a_limit_from_out_of_band_is_not_taken_for_what_was_set(driver: StubDriver, nvml: NvmlDriver) -> None:
    driver.gpu(0).out_of_band_mw = 300_000
    keeping = Keeping(nvml)
    keeping.order(power_limit_w=250.0)
    keeping.rounds(2)
    assert keeping.cap_controller.gpu_states()[0].enforced.power_limit_w == 250.0
    assert keeping.cap_controller.restore()
    assert driver.limits_w == [700.0, 700.0]
    assert nvml.enforced(driver.uuids[0]).power_limit_w == 300.0


@pytest.mark.parametrize("ignored", [1, 3])
def test_an_ignored_power_limit_is_seen_and_asked_again(driver: StubDriver, keeping: Keeping, ignored: int) -> None:
    driver.state.ignore_power = 2 * ignored
    keeping.order(power_limit_w=450.0)
    keeping.rounds(60)
    assert agree(keeping, Caps(450.0))
    assert keeping.cap_controller.counts[CapKind.POWER, Event.IGNORED] == 2 * ignored
    assert driver.gpu(0).power_writes == ignored + 1


def test_an_ignored_lock_shows_by_the_clock_of_a_busy_gpu(driver: StubDriver, keeping: Keeping) -> None:
    driver.state.ignore_clocks = 2
    keeping.order(clock_mhz=1500)
    keeping.rounds(3)
    assert keeping.cap_controller.gpu_states()[0].enforced.clock_mhz == 1980
    keeping.rounds(20)
    assert agree(keeping, Caps(None, 1500))
    assert driver.locks_mhz == [1500, 1500]
    assert (
        keeping.cap_controller.counts[CapKind.CLOCK, Event.IGNORED]
        + keeping.cap_controller.counts[CapKind.CLOCK, Event.CHANGED]
        == 2
    )


def test_a_driver_that_ignores_for_ever_is_asked_a_bounded_number_of_times(
    driver: StubDriver, keeping: Keeping
) -> None:
    driver.state.ignore_power = 10**6
    keeping.order(power_limit_w=450.0, uuids=driver.uuids[:1], lease_s=1e6)
    keeping.rounds(1000, every_s=1.0)
    # First, then after 1, 2, 4 ... 60 s, then once a minute.
    assert driver.gpu(0).power_writes <= MAX_TRIES + 1 + 1000 / 60
    assert keeping.cap_controller.gpu_states()[0].cap_states[CapKind.POWER].state is CapStatus.GIVEN_UP
    driver.state.ignore_power = 0
    keeping.rounds(61, every_s=1.0)
    assert driver.limits_w[0] == 450.0
    assert keeping.cap_controller.gpu_states()[0].cap_states[CapKind.POWER].state is CapStatus.HELD


def test_somebody_elses_limit_is_put_back_at_once_and_a_lower_one_is_left(driver: StubDriver, keeping: Keeping) -> None:
    keeping.order(power_limit_w=450.0)
    keeping.rounds(4)
    driver.gpu(0).limit_mw = 650_000
    driver.gpu(1).limit_mw = 300_000
    keeping.rounds(2)
    assert driver.limits_w == [450.0, 300.0]
    assert keeping.cap_controller.counts[CapKind.POWER, Event.CHANGED] == 1


def test_a_reload_forgets_and_everything_is_asked_again_at_once(driver: StubDriver, keeping: Keeping) -> None:
    keeping.order(power_limit_w=450.0, clock_mhz=1500)
    keeping.rounds(4)
    driver.reload()
    keeping.rounds(1)
    assert driver.limits_w == [450.0, 450.0]
    assert driver.locks_mhz == [1500, 1500]
    assert keeping.cap_controller.counts[CapKind.CLOCK, Event.FORGOTTEN] == 2
    assert keeping.gpus.epoch == 2


def test_a_gpu_that_came_back_is_locked_again(driver: StubDriver, keeping: Keeping) -> None:
    keeping.order(clock_mhz=1500)
    keeping.rounds(2)
    driver.gpu(0).lost = 1
    keeping.rounds()
    assert [s.lost for s in keeping.cap_controller.gpu_states()] == [True, False]
    assert "GPU is lost" in str(keeping.cap_controller.gpu_states()[0].error)
    driver.gpu(0).lost = 0
    driver.gpu(0).lock_high = 0  # it was reset, at an idle moment
    driver.gpu(0).busy = 0
    keeping.rounds(2)
    assert driver.locks_mhz == [1500, 1500]


def test_without_the_right_it_only_looks_and_says_so(driver: StubDriver, keeping: Keeping) -> None:
    driver.state.refuse = 1
    keeping.order(power_limit_w=450.0, lease_s=1e6)
    keeping.rounds(100, every_s=1.0)
    sight = keeping.cap_controller.gpu_states()[0]
    assert sight.cap_states[CapKind.POWER].state is CapStatus.REFUSED
    assert "Insufficient Permissions" in str(sight.error)
    assert (sight.planned, sight.applied, sight.enforced.power_limit_w) == (Caps(450.0), Caps(), 700.0)
    assert keeping.cap_controller.counts[CapKind.POWER, Event.REFUSED] == 4  # two GPUs, once a minute
    driver.state.refuse = 0
    keeping.rounds(61, every_s=1.0)
    assert agree(keeping, Caps(450.0))


def test_an_observer_writes_nothing(driver: StubDriver, nvml: NvmlDriver, tmp_path: Path) -> None:
    keeping = Keeping(nvml, memory=tmp_path / "state.json", acting=False)
    keeping.order(power_limit_w=450.0)
    keeping.rounds(10)
    assert keeping.cap_controller.gpu_states()[0].planned == Caps(450.0)
    assert keeping.cap_controller.restore()
    assert driver.gpu(0).power_writes == 0
    assert not (tmp_path / "state.json").exists()


def test_orders_outside_of_the_range_are_refused_by_field_and_nothing_is_taken(
    driver: StubDriver, keeping: Keeping
) -> None:
    with pytest.raises(OutOfRangeError, match=r"power_limit_w: must be from 200 to 700 on .*, got 100"):
        keeping.order(power_limit_w=100.0)
    with pytest.raises(OutOfRangeError, match=r"clock_mhz: must be from 345 to 1980 on .*, got 2000"):
        keeping.order(clock_mhz=2000)
    with pytest.raises(OutOfRangeError, match=r"gpus: no 'GPU-x' here; known: "):
        keeping.order(power_limit_w=400.0, uuids=(driver.uuids[0], "GPU-x"))
    assert keeping.cap_controller.leases() == ()
    driver.gpu(0).no_clocks = 1
    keeping.started()
    with pytest.raises(NotSupportedError, match=r"clock_mhz: the clock of .* cannot be locked by nvml"):
        keeping.order(clock_mhz=1500)


def test_what_was_found_is_restored_at_the_end(driver: StubDriver, keeping: Keeping) -> None:
    driver.gpu(1).limit_mw = 600_000
    keeping.started()
    keeping.order(power_limit_w=450.0, clock_mhz=1500)
    keeping.rounds(2)
    assert keeping.memory is not None
    assert keeping.memory.stat().st_mode & 0o777 == 0o600
    driver.state.ignore_power = 1
    assert keeping.cap_controller.restore()
    assert driver.limits_w == [700.0, 600.0]
    assert driver.locks_mhz == [0, 0]
    assert not keeping.memory.exists()


def test_what_cannot_be_restored_is_left_to_the_next_one(driver: StubDriver, keeping: Keeping) -> None:
    keeping.order(power_limit_w=450.0)
    keeping.rounds(2)
    driver.state.refuse = 1
    assert not keeping.cap_controller.restore()
    assert keeping.memory is not None
    assert keeping.memory.exists()
    driver.state.refuse = 0
    keeping.started().restore()
    assert driver.limits_w == [700.0, 700.0]


def test_the_agent_after_a_killed_one_goes_on_with_orders_that_run(driver: StubDriver, keeping: Keeping) -> None:
    keeping.order(power_limit_w=450.0, clock_mhz=1500, lease_s=60.0)
    keeping.rounds(4)
    keeping.started()  # the one before never got to its end
    keeping.rounds(2)
    assert agree(keeping, Caps(450.0, 1500))
    assert keeping.cap_controller.restore()
    assert driver.limits_w == [700.0, 700.0]  # not the 450 W that it found
    assert driver.locks_mhz == [0, 0]


def test_leases_of_another_boot_are_dropped_and_original_caps_kept(driver: StubDriver, keeping: Keeping) -> None:
    keeping.order(power_limit_w=450.0)
    keeping.rounds(2)
    keeping.started(boot="boot-2")
    assert keeping.cap_controller.leases() == ()
    keeping.rounds(2)
    assert driver.limits_w == [700.0, 700.0]


def test_a_state_file_that_cannot_be_read_stops_the_start(keeping: Keeping) -> None:
    assert keeping.memory is not None
    keeping.memory.write_text(json.dumps({"version": 7}))
    with pytest.raises(StateFileError, match="check the caps of each GPU, then remove the file"):
        keeping.started()


def test_nothing_is_set_that_could_not_be_put_back(driver: StubDriver, nvml: NvmlDriver, tmp_path: Path) -> None:
    keeping = Keeping(nvml, memory=tmp_path / "none" / "state.json")
    keeping.order(power_limit_w=450.0)
    keeping.rounds(4)
    assert driver.limits_w == [700.0, 700.0]
    assert "No such file" in str(keeping.cap_controller.gpu_states()[0].error)
