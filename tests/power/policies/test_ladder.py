"""The ladder: the highest clocks that the forecast allows, monotone in the reading, correct about calm."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.arrays import Floats
from power.controls import Clocks, Phase, Priority, Routing
from power.policies.ladder import Ladder, LadderState, Margins, Step
from power.server_model import BLOOM_A100
from power.telemetry import Reading, RowObservation
from power.workload.workload import TrainingJob
from tests.power.policies.rows import BUDGET_W, any_counts, busy, observed, shares

LADDER = Ladder()
ROUTED = Ladder(routing=(Step(0.9, Routing(low_together=2)), Step(1.1, Routing(low_together=4, high_together=2))))
EXACT = Ladder(margins=Margins(growth=0.0, spread=0.0, learn_prompts=1.0, learn_correction=0.0, calm_share=0.0))
JOB = TrainingJob(name="job", servers=10, iteration_s=4.0, compute_share=0.75, compute_w=6000.0, trough_w=3000.0)

states = st.builds(
    LadderState,
    rung=st.integers(0, len(LADDER.rungs) - 1),
    correction=st.floats(0.85, 1.25),
    low_prompts=st.floats(0, 1),
    high_prompts=st.floats(0, 1),
    pressure=st.floats(0, 2),
    step=st.integers(0, 2),
)


def row_w(counts: Floats, clocks: Clocks) -> float:
    """The power of the row at these clocks, by its curves."""
    return sum(
        float(counts[0, priority, phase]) * BLOOM_A100.watts(phase, clocks.of(priority, phase))
        for priority, phase in product(Priority, Phase)
    )


def settled(ladder: Ladder, counts: Floats, budget_w: float, ticks: int = 400) -> LadderState:
    """Return the state after many readings of a row that follows its curves."""
    state = ladder.start()
    for tick in range(ticks):
        reading_w = row_w(counts, ladder.rungs[state.rung].clocks)
        state, _ = ladder.decide(state, RowObservation(2.0 * tick, Reading(2.0 * tick, reading_w), counts, budget_w))
    return state


@given(counts=any_counts(), budget_w=st.floats(60_000, 400_000))
def test_the_rung_is_the_first_that_fits(counts: Floats, budget_w: float) -> None:
    state, setting = EXACT.decide(EXACT.start(), RowObservation(2.0, Reading(2.0, budget_w), counts, budget_w))
    allowed_w = EXACT.margins.share * budget_w
    assert setting.clocks == EXACT.rungs[state.rung].clocks
    if state.rung:
        assert row_w(counts, EXACT.rungs[state.rung - 1].clocks) > allowed_w * (1 - 1e-9)
    if state.rung < len(EXACT.rungs) - 1:
        assert row_w(counts, setting.clocks) <= allowed_w * (1 + 1e-9)


@given(state=states, counts=any_counts(), used=st.tuples(shares, shares))
def test_a_higher_reading_never_raises_clocks(state: LadderState, counts: Floats, used: tuple[float, float]) -> None:
    mild, _ = ROUTED.decide(state, observed(used=min(used), counts=counts))
    hard, _ = ROUTED.decide(state, observed(used=max(used), counts=counts))
    assert hard.rung >= mild.rung
    assert hard.step >= mild.step


@given(state=states, counts=any_counts(), share=st.floats(0, 0.999999), now_s=st.floats(0, 1e6))
def test_a_reading_below_the_calm_level_changes_nothing(
    state: LadderState, counts: Floats, share: float, now_s: float
) -> None:
    calm_w = ROUTED.calm_below_w(state, BUDGET_W)
    if calm_w > 0:
        used = share * calm_w / BUDGET_W
        before = ROUTED.decide(state, observed(used=used))
        assert ROUTED.decide(state, observed(used=used, counts=counts, now_s=now_s)) == before
        assert before[0] == state


def test_the_ladder_is_calm_only_on_its_first_rung() -> None:
    assert LADDER.calm_below_w(LadderState(), 100.0) == pytest.approx(100 * LADDER.margins.calm_share)
    assert LADDER.calm_below_w(LadderState(rung=1), 100.0) < 0
    assert LADDER.calm_below_w(LadderState(step=1), 100.0) < 0


@given(counts=any_counts(), low=st.floats(60_000, 200_000), more=st.floats(1, 3))
def test_a_larger_budget_never_lowers_clocks(counts: Floats, low: float, more: float) -> None:
    small, large = (
        EXACT.decide(EXACT.start(), RowObservation(2.0, Reading(2.0, w), counts, w))[0] for w in (low, low * more)
    )
    assert large.rung <= small.rung


def test_the_meter_corrects_the_curves() -> None:
    counts = busy()
    budget_w = row_w(counts, Clocks()) / 0.9
    states = []
    for factor in (0.95, 1.0, 1.05):
        state = LADDER.start()
        for tick in range(600):
            reading_w = factor * row_w(counts, LADDER.rungs[state.rung].clocks)
            state, _ = LADDER.decide(
                state, RowObservation(2.0 * tick, Reading(2.0 * tick, reading_w), counts, budget_w)
            )
        states.append(state)
    assert [state.correction for state in states] == pytest.approx([0.95, 1.0, 1.05], abs=1e-3)
    assert [state.rung for state in states] == sorted(state.rung for state in states)


def test_a_stale_reading_corrects_nothing() -> None:
    state = LADDER.decide(LADDER.start(), observed(used=1.2, counts=busy(), age_s=60))[0]
    assert state.correction == LADDER.start().correction


def test_the_ladder_climbs_only_to_its_budget_share_and_returns() -> None:
    counts = busy()
    tight = settled(LADDER, counts, row_w(counts, Clocks()))
    held_w = row_w(counts, LADDER.rungs[tight.rung].clocks)
    assert 0 < tight.rung < 40
    assert 0.93 < held_w / row_w(counts, Clocks()) < 0.97
    assert settled(LADDER, counts, 2 * row_w(counts, Clocks())).rung == 0


def test_a_burst_of_prompts_moves_the_rung_less_than_more_busy_servers() -> None:
    state = settled(LADDER, busy(), row_w(busy(), Clocks()))
    budget_w = row_w(busy(), Clocks())
    reading = Reading(1000.0, budget_w)
    burst, _ = LADDER.decide(state, RowObservation(1000.0, reading, busy(low=(12, 12), high=(14, 10)), budget_w))
    fuller, _ = LADDER.decide(state, RowObservation(1000.0, reading, busy(low=(24, 4), high=(26, 2)), budget_w))
    assert abs(burst.rung - state.rung) < fuller.rung - state.rung


def test_a_budget_of_zero_gives_the_last_rung() -> None:
    counts = busy()
    state, setting = LADDER.decide(LADDER.start(), RowObservation(2.0, Reading(2.0, 1000.0), counts, 0.0))
    assert (setting.clocks, setting.low_limit_w) == (LADDER.rungs[-1].clocks, 0.0)
    assert state.rung == len(LADDER.rungs) - 1


def test_a_higher_clock_rung_must_leave_a_margin() -> None:
    counts = busy()
    budget_w = row_w(counts, Clocks())
    state = settled(LADDER, counts, budget_w)
    reading = Reading(1e4, row_w(counts, LADDER.rungs[state.rung].clocks))
    little, much = (
        LADDER.decide(state, RowObservation(1e4, reading, counts, budget_w * (1 + more)))[0] for more in (0.004, 0.04)
    )
    assert little.rung == state.rung > much.rung


def test_routing_steps_up_with_pressure_and_down_only_below_the_band() -> None:
    assert [ROUTED._step(0, pressure, 0.1) for pressure in (0.5, 0.9, 0.91, 1.5)] == [0, 0, 1, 1]
    assert [ROUTED._step(1, pressure, 0.1) for pressure in (0.79, 0.81, 1.11)] == [0, 1, 2]
    assert ROUTED._step(2, 1.5, 0.2) == 1  # batched requests would wait for too many prompts
    counts = busy(low=(22, 1), high=(22, 1))
    state = settled(ROUTED, counts, row_w(counts, Clocks()) / 1.3)
    assert ROUTED.decide(state, observed(used=0.9, counts=counts))[1].routing == ROUTED.routing[1].routing


def test_admission_limits_are_shares_of_the_budget() -> None:
    _, setting = LADDER.decide(LADDER.start(), observed(counts=busy(), used=0.9))
    assert (setting.low_limit_w, setting.high_limit_w) == (
        LADDER.margins.low_limit * BUDGET_W,
        LADDER.margins.high_limit * BUDGET_W,
    )


def test_training_counts_at_its_compute_power_and_is_corrected_at_its_mean_power() -> None:
    ladder = Ladder(jobs=(JOB,))
    counts = np.zeros((1, len(Priority), len(Phase)))
    counts[0, 0, Phase.TRAINING] = 10
    mean_w = 10 * (0.75 * 6000 + 0.25 * 3000)
    state = ladder.start()
    for tick in range(50):
        state, _ = ladder.decide(state, RowObservation(2.0 * tick, Reading(2.0 * tick, mean_w), counts, 66_000.0))
    assert state.rung == 0
    assert state.correction == pytest.approx(1.0)
    _, tighter = ladder.decide(state, RowObservation(100.0, Reading(100.0, mean_w), counts, 61_000.0))
    assert tighter.clocks.training < 1  # compute takes 60 kW of 61, which leaves less than the margins


def test_the_peak_falls_from_rung_to_rung_for_any_counts() -> None:
    """The search for the first rung that fits counts those that do not, which requires this order."""
    for before, after in pairwise(LADDER._draws.peak_w):
        assert np.all(after <= before)


def test_two_kinds_of_server_count_separately() -> None:
    small = BLOOM_A100.model_copy(update={"name": "small", "gpus": 4})
    both = Ladder(kinds=(BLOOM_A100, small))
    counts = np.zeros((2, len(Priority), len(Phase)))
    counts[0, 0, Phase.TOKEN], counts[1, 0, Phase.TOKEN] = 10, 10
    more = counts[::-1].copy() * [[[1.0]], [[2.0]]]
    budget_w = 10 * (BLOOM_A100.token_w() + small.token_w())
    one, other = (
        both.decide(both.start(), RowObservation(2.0, Reading(2.0, budget_w), each, budget_w))[0]
        for each in (counts, more)
    )
    assert other.rung > one.rung > 0
