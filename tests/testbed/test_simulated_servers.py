"""The simulated actuator: commands take effect late, or never, and the read-back is true."""

from typing import Any

import numpy as np
import pytest

from fleet.documents import RuleError
from fleet.errors import UnknownNameError
from power.controls import Clocks
from power.guard import Duty
from tests.testbed.simulated_servers import ActuatorFaults, SimulatedActuator

NAMES = ("low", "high", "train")
SLOW = Clocks(low_token=0.5, high_token=0.6, low_prompt=0.7, high_prompt=0.8, training=0.9)


def new_actuator(seed: int = 0, **changes: Any) -> SimulatedActuator:
    faults = ActuatorFaults(**changes)
    rng = np.random.default_rng(seed)
    return SimulatedActuator(
        NAMES, [Duty.LOW, Duty.HIGH, Duty.TRAINING], rng=rng, delay_s=1.0, brake_s=2.0, faults=faults
    )


def clocks(actuator: SimulatedActuator) -> list[tuple[float, float]]:
    return [(each.token_clock, each.prompt_clock) for each in actuator.enforced().values()]


def test_each_server_applies_its_own_clocks_after_the_delay() -> None:
    actuator = new_actuator()
    actuator.set_clocks(NAMES, SLOW)
    actuator.advance(0.99)
    assert clocks(actuator) == [(1.0, 1.0)] * 3
    actuator.advance(1.0)
    assert clocks(actuator) == [(0.5, 0.7), (0.6, 0.8), (0.9, 0.9)]


def test_a_newer_command_replaces_a_pending_one() -> None:
    actuator = new_actuator()
    actuator.set_clocks(NAMES, SLOW)
    actuator.advance(0.5)
    actuator.set_clocks(["low"], Clocks())
    actuator.advance(2.0)
    assert clocks(actuator)[0] == (1.0, 1.0)


def test_the_brake_is_independent_of_the_clock_commands() -> None:
    actuator = new_actuator(unresponsive=("high",))
    actuator.brake(NAMES, on=True)
    actuator.advance(1.9)
    assert not any(each.braked for each in actuator.enforced().values())
    actuator.advance(2.0)
    assert all(each.braked for each in actuator.enforced().values())
    actuator.brake(["low"], on=False)
    actuator.advance(4.0)
    assert [each.braked for each in actuator.enforced().values()] == [False, True, True]


def test_ignored_commands_report_no_error_and_change_nothing() -> None:
    actuator = new_actuator(ignored_share=1.0)
    assert actuator.set_clocks(NAMES, SLOW) == {}
    actuator.advance(100.0)
    assert clocks(actuator) == [(1.0, 1.0)] * 3


def test_refused_commands_are_named() -> None:
    assert set(new_actuator(refused_share=1.0).set_clocks(NAMES, SLOW)) == set(NAMES)


def test_late_commands_apply_after_their_delay() -> None:
    actuator = new_actuator(late_share=1.0, late_s=30.0)
    actuator.set_clocks(NAMES, SLOW)
    actuator.advance(30.9)
    assert clocks(actuator)[0] == (1.0, 1.0)
    actuator.advance(31.0)
    assert clocks(actuator)[0] == (0.5, 0.7)


def test_a_share_of_commands_is_ignored() -> None:
    names = [f"n{at}" for at in range(2000)]
    actuator = SimulatedActuator(
        names, [Duty.LOW] * 2000, rng=np.random.default_rng(1), faults=ActuatorFaults(ignored_share=0.05)
    )
    actuator.set_clocks(names, SLOW)
    actuator.advance(10.0)
    ignored = sum(each.token_clock == 1.0 for each in actuator.enforced().values())
    assert 60 < ignored < 140  # 100 expected, sigma 9.7


def test_a_driver_reload_clears_caps_but_not_the_brake() -> None:
    actuator = new_actuator()
    actuator.set_clocks(NAMES, SLOW)
    actuator.brake(NAMES, on=True)
    actuator.advance(5.0)
    actuator.set_clocks(["low"], Clocks(low_token=0.2))
    actuator.reload_driver(["low"])
    actuator.advance(10.0)
    low = actuator.enforced()["low"]
    assert (low.token_clock, low.prompt_clock, low.braked, low.epoch) == (1.0, 1.0, True, 2)
    assert actuator.enforced()["high"].epoch == 1


def test_a_disconnected_server_neither_receives_nor_reports() -> None:
    actuator = new_actuator()
    actuator.advance(3.0)
    actuator.set_silent(["high"], silent=True)
    actuator.set_clocks(NAMES, SLOW)
    actuator.brake(NAMES, on=True)
    actuator.advance(10.0)
    high = actuator.enforced()["high"]
    assert (high.read_at_s, high.token_clock, high.braked) == (3.0, 1.0, False)
    actuator.set_silent(["high"], silent=False)
    actuator.advance(11.0)
    assert actuator.enforced()["high"].read_at_s == 11.0


def test_clocks_are_rounded_down_to_device_steps() -> None:
    actuator = new_actuator(clock_step=0.15)
    actuator.set_clocks(NAMES, SLOW)
    actuator.advance(2.0)
    assert clocks(actuator)[0] == pytest.approx((0.45, 0.60))
    assert clocks(actuator)[2] == pytest.approx((0.90, 0.90))  # a step already


def test_the_same_seed_gives_the_same_faults() -> None:
    outcomes = []
    for _ in range(2):
        actuator = new_actuator(seed=7, ignored_share=0.5, late_share=0.5)
        for at in range(20):
            actuator.set_clocks(NAMES, SLOW if at % 2 else Clocks())
            actuator.advance(float(at))
            outcomes.append(clocks(actuator))
    assert outcomes[:20] == outcomes[20:]


def test_arrays_and_named_states_agree() -> None:
    actuator = new_actuator()
    actuator.set_clocks(NAMES, SLOW)
    actuator.brake(["high"], on=True)
    actuator.advance(5.0)
    states = actuator.servers()
    for at, each in enumerate(actuator.enforced().values()):
        expected = [each.token_clock, each.prompt_clock, float(each.braked), float(each.epoch)]
        assert states.held[:, at].tolist() == expected
        assert states.read_at_s[at] == each.read_at_s


def test_unknown_and_repeated_names_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown server 'hihg'; nearest: high"):
        new_actuator().set_clocks(["hihg"], SLOW)
    with pytest.raises(RuleError, match="must be unique"):
        SimulatedActuator(["a", "a"], [Duty.LOW] * 2, rng=np.random.default_rng(0))
