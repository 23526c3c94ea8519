"""The rungs against every combination of clocks, and properties of any frontier."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from power.controls import Clocks, Phase, Priority
from power.policies.frontier import Control, Rung, Slack, clock_grid, clock_loss, controls_of, frontier, slowdown
from power.server_model import BLOOM_A100, Draw, ServerModel
from power.workload.workload import TrainingJob
from tests.power.policies.rows import any_counts

GRID = (1.0, 0.85, 0.7, 0.5, 0.35)
OTHER = BLOOM_A100.model_copy(
    update={"name": "other", "token": Draw(floor_w=200.0, rise_w=300.0, exponent=2.2), "token_sensitivity": 0.4}
)
JOB = TrainingJob(name="job", servers=10, iteration_s=4.0, compute_share=0.8, compute_w=6000.0, trough_w=3000.0)


def evenly(*kinds: ServerModel) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.ones((len(kinds), len(Priority), len(Phase)))


def least_losses(controls: tuple[Control, ...], rung: Rung) -> float:
    """The least loss of all combinations that save at least as much as the rung."""
    wanted_w = rung.saved_w * (1 - 1e-12) - 1e-9
    return min(
        sum(control.loss(clock) for control, clock in zip(controls, clocks, strict=True))
        for clocks in product(GRID, repeat=len(controls))
        if sum(control.saved_w(clock) for control, clock in zip(controls, clocks, strict=True)) >= wanted_w
    )


@settings(max_examples=15)
@given(mix=any_counts(kinds=2), low=st.floats(0.01, 0.5), high=st.floats(0.005, 0.1))
def test_no_combination_of_clocks_beats_a_rung(
    mix: np.ndarray[tuple[int, ...], np.dtype[np.float64]], low: float, high: float
) -> None:
    controls = controls_of((BLOOM_A100, OTHER), mix, slack=Slack(low=low, high=high))
    for rung in frontier(controls, GRID)[::3]:
        assert rung.loss <= least_losses(controls, rung) * (1 + 1e-9) + 1e-9


def test_every_rung_costs_more_and_saves_more_at_a_falling_rate() -> None:
    rungs = frontier(controls_of((BLOOM_A100,), evenly(BLOOM_A100), slack=Slack(), jobs=(JOB,)), clock_grid())
    worth = [(b.saved_w - a.saved_w) / (b.loss - a.loss) for a, b in pairwise(rungs)]
    assert rungs[0].clocks == Clocks()
    assert all(a >= b * (1 - 1e-9) > 0 for a, b in pairwise(worth))
    assert all(b.clocks.slower(a.clocks) == b.clocks for a, b in pairwise(rungs))
    assert rungs[-1].clocks == Clocks(*[0.3] * 5)


def test_a_rung_reports_the_loss_and_saving_of_its_clocks() -> None:
    slack, mix = Slack(low=0.1, high=0.02), 3 * evenly(BLOOM_A100)
    for rung in frontier(controls_of((BLOOM_A100,), mix, slack=slack), GRID):
        served = [
            (priority, phase, rung.clocks.of(priority, phase))
            for priority, phase in product(Priority, (Phase.TOKEN, Phase.PROMPT))
        ]
        lost = sum(3 * clock_loss(BLOOM_A100, *control, slack) for control in served)
        saved_w = sum(3 * (BLOOM_A100.watts(phase) - BLOOM_A100.watts(phase, clock)) for _, phase, clock in served)
        assert (rung.loss, rung.saved_w) == pytest.approx((lost, saved_w))


def test_low_priority_decode_is_first_and_high_priority_prompts_are_last() -> None:
    rungs = frontier(controls_of((BLOOM_A100,), evenly(BLOOM_A100), slack=Slack()), clock_grid())
    first = {
        control: next(at for at, rung in enumerate(rungs) if getattr(rung.clocks, control) < 1)
        for control in ("low_token", "low_prompt", "high_token", "high_prompt")
    }
    assert sorted(first, key=first.__getitem__) == ["low_token", "low_prompt", "high_token", "high_prompt"]


def test_server_counts_matter_only_with_more_than_one_kind_of_server() -> None:
    slack = Slack()
    few, many = evenly(BLOOM_A100), evenly(BLOOM_A100)
    many[:, :, Phase.PROMPT] = 7
    one = [[r.clocks for r in frontier(controls_of((BLOOM_A100,), mix, slack=slack), GRID)] for mix in (few, many)]
    assert one[0] == one[1]
    mixes = evenly(BLOOM_A100, OTHER), evenly(BLOOM_A100, OTHER)
    mixes[1][1, Priority.LOW] = 50
    grid = clock_grid()
    two = [[r.clocks for r in frontier(controls_of((BLOOM_A100, OTHER), mix, slack=slack), grid)] for mix in mixes]
    assert two[0] != two[1]


def test_a_clock_that_saves_nothing_is_not_a_rung() -> None:
    flat = BLOOM_A100.model_copy(update={"token": Draw(floor_w=250.0, rise_w=0.0, exponent=1.0)})
    rungs = frontier(controls_of((flat,), evenly(flat), slack=Slack()), GRID)
    assert {rung.clocks.low_token for rung in rungs} == {1.0}


def test_controls_without_cost_come_first() -> None:
    free = BLOOM_A100.model_copy(update={"token_sensitivity": 0.0, "token_floor_time": 0.0})
    rungs = frontier(controls_of((free,), evenly(free), slack=Slack()), GRID)
    costless = [rung for rung in rungs if rung.loss == 0]
    assert costless[-1].clocks == Clocks(low_token=0.35, high_token=0.35)


def test_the_loss_is_one_when_the_slack_is_used_up() -> None:
    slack = Slack(low=0.05, high=0.01)
    clock = 1 / (1 + 0.05)
    assert clock_loss(BLOOM_A100, Priority.LOW, Phase.PROMPT, clock, slack) == pytest.approx(1)
    assert clock_loss(BLOOM_A100, Priority.HIGH, Phase.PROMPT, clock, slack) == pytest.approx(5)
    assert slowdown(BLOOM_A100, Phase.IDLE, 0.3) == 1


def test_the_grid_runs_from_full_clock_down() -> None:
    assert clock_grid(0.5, 0.25) == (1.0, 0.75, 0.5)
    assert clock_grid()[-1] == pytest.approx(0.3)
