"""The times of the brake, and the effects of faults."""

from math import inf

import numpy as np
import pytest
from pydantic import ValidationError

from power.controls import Clocks, Priority, Setting
from power.simulator import (
    BiasedTelemetry,
    DriverReloaded,
    IgnoredActuation,
    LateActuation,
    MissingTelemetry,
    Outcome,
    PlannerKilled,
    RowSpec,
    StaleTelemetry,
    simulate,
)
from power.simulator.spec import Fault
from power.telemetry import RowObservation
from power.workload import Work
from tests.power.simulator.rows import SMALL, Scripted, work_of

HALF = Setting(Clocks(*[0.5] * 5))
FOUR = ((Priority.LOW, 2), (Priority.HIGH, 2))
PER_POOL_W = 2 * SMALL.token_w()


def busy(duration_s: float = 120.0) -> Work:
    """Four servers that generate tokens from 20 s on to the end."""
    return work_of([(20.0 + at * 0.1, at % 2, 1, 20_000) for at in range(4)], pools=FOUR, duration_s=duration_s)


class RecordingPolicy(Scripted):
    """Records its observations."""

    def decide(self, state: None, observed: RowObservation) -> tuple[None, Setting]:
        """Record the observation and follow the script."""
        OBSERVATIONS.append(observed)
        return super().decide(state, observed)


OBSERVATIONS: list[RowObservation] = []


def run(
    *faults: Fault, steps: tuple[tuple[float, Setting], ...] = (), budget_w: float = 1e8, bare: bool = True
) -> Outcome:
    """The outcome of a script on the busy row."""
    OBSERVATIONS.clear()
    spec = RowSpec(budget_w=budget_w, model=SMALL, bias=0.0)
    policy = RecordingPolicy(steps or ((0.0, Setting()),), command_delay_s=1.0)
    return simulate(spec, busy(), policy=policy, bare=bare, faults=faults, seed=3)


@pytest.mark.parametrize("bare", [True, False])
def test_the_brake_takes_effect_five_seconds_after_the_reading_and_holds_for_ten(bare: bool) -> None:  # noqa: FBT001
    outcome = run(budget_w=2 * PER_POOL_W * 0.99, bare=bare)
    over_s = 2.0 * float(np.argmax(outcome.readings_w > outcome.budget_w) + 1)
    engaged_s, released_s = outcome.braked_s[0]
    assert engaged_s == over_s + 2.0  # the telemetry delay
    braked_w = 4 * SMALL.token_w(SMALL.brake_clock)
    in_effect = int((engaged_s + 5.0) // 2)
    assert outcome.readings_w[in_effect - 1] > 1.1 * braked_w
    assert outcome.readings_w[in_effect + 1] == pytest.approx(braked_w)
    assert released_s - engaged_s >= 5.0 + 10.0
    after_release = int((released_s + 5.0) // 2)
    assert outcome.readings_w[after_release - 1] == pytest.approx(braked_w)
    assert outcome.brakes == len(outcome.braked_s) > (1 if bare else 0)  # it draws as much again


def test_a_row_within_its_budget_never_brakes() -> None:
    outcome = run(budget_w=2 * PER_POOL_W * 1.3)
    assert (outcome.brakes, outcome.seconds_over_budget, outcome.braked_s) == (0, 0.0, ())
    assert outcome.peak_utilization < 1


def test_readings_arrive_after_the_telemetry_delay() -> None:
    outcome = run()
    for observed in OBSERVATIONS:
        assert observed.now_s - observed.reading.at_s == 2.0
        assert observed.reading.row_w == outcome.readings_w[round(observed.reading.at_s / 2) - 1]
        assert observed.counts.sum() == 4


def test_stale_telemetry_repeats_the_last_reading() -> None:
    run(StaleTelemetry(from_s=50.0, to_s=70.0))
    ages = {observed.now_s: observed.now_s - observed.reading.at_s for observed in OBSERVATIONS}
    assert ages[48.0] == 2.0
    assert [ages[at] for at in (50.0, 60.0, 68.0)] == [4.0, 14.0, 22.0]
    assert ages[70.0] == 2.0


def test_missing_telemetry_loses_single_readings() -> None:
    run(MissingTelemetry(share=0.5))
    fresh = [observed.now_s - observed.reading.at_s == 2.0 for observed in OBSERVATIONS]
    assert 0.25 < np.mean(fresh) < 0.75


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.3])
def test_a_biased_meter_scales_the_readings_and_not_the_row(factor: float) -> None:
    outcome = run(BiasedTelemetry(factor=factor, from_s=40.0, to_s=80.0))
    for observed in OBSERVATIONS:
        scale = factor if 40.0 <= observed.now_s < 80.0 else 1.0
        assert observed.reading.row_w == pytest.approx(scale * outcome.readings_w[round(observed.reading.at_s / 2) - 1])


def test_ignored_orders_leave_servers_unchanged() -> None:
    unresponsive = run(IgnoredActuation(share=1.0), steps=((40.0, HALF),))
    assert (unresponsive.commands, unresponsive.ignored) == (0, 4)
    assert unresponsive.readings_w[-1] == pytest.approx(4 * SMALL.token_w())
    some = run(IgnoredActuation(share=0.5), steps=tuple((40.0 + 4 * at, (HALF, Setting())[at % 2]) for at in range(20)))
    assert 20 < some.ignored < 60
    assert some.ignored + some.commands == 80
    afterwards = run(IgnoredActuation(share=1.0, to_s=39.0), steps=((40.0, HALF),))
    assert afterwards.commands == 4


def test_late_orders_take_effect_late() -> None:
    outcome = run(LateActuation(share=1.0, late_s=20.0), steps=((40.0, HALF),))
    assert outcome.readings_w[29] == pytest.approx(4 * SMALL.token_w())
    assert outcome.readings_w[31] == pytest.approx(4 * SMALL.token_w(0.5))


def test_a_reloaded_driver_loses_caps_and_the_guard_commands_again() -> None:
    bare_run, guarded_run = (run(DriverReloaded(at_s=60.0), steps=((30.0, HALF),), bare=bare) for bare in (True, False))
    full_w, half_w = 4 * SMALL.token_w(), 4 * SMALL.token_w(0.5)
    assert bare_run.readings_w[[28, 31, 59]] == pytest.approx([half_w, full_w, full_w])
    assert guarded_run.readings_w[28] == pytest.approx(half_w)
    assert half_w < guarded_run.readings_w[30] < full_w  # for a second
    assert guarded_run.readings_w[-1] == pytest.approx(half_w)


def test_the_guard_caps_when_the_planner_stops_and_the_budget_expires() -> None:
    spec = RowSpec(budget_w=1e8, model=SMALL, budget_renewed_s=10.0, budget_valid_s=30.0)
    policy = Scripted()
    alive, dead = (
        simulate(spec, busy(), policy=policy, faults=faults) for faults in ((), (PlannerKilled(from_s=45.0),))
    )
    first_reading_s = 10.0  # the guard begins without a reading
    assert all(change.at_s < first_reading_s for change in alive.clocks)
    capped = [change for change in dead.clocks if min(change.clocks) < 1.0 and change.at_s > first_reading_s]
    assert capped[0].at_s == pytest.approx(40.0 + 30.0, abs=2.0)


def test_the_guard_repeats_ignored_commands() -> None:
    steps = ((40.0, HALF),)
    bare, guarded = (run(IgnoredActuation(share=0.6, to_s=44.0), steps=steps, bare=bare) for bare in (True, False))
    half_w = 4 * SMALL.token_w(0.5)
    assert bare.ignored > 0
    assert bare.readings_w[-1] > half_w
    assert guarded.readings_w[-1] == pytest.approx(half_w)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RowSpec(budget_w=-1.0),
        lambda: RowSpec(budget_w=inf),
        lambda: RowSpec(budget_w=1e5, bias=-0.1),
        lambda: IgnoredActuation(share=1.5),
        lambda: BiasedTelemetry(factor=0.0),
        lambda: StaleTelemetry(from_s=20.0, to_s=10.0),
    ],
)
def test_invalid_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        wrong()  # type: ignore[operator]
