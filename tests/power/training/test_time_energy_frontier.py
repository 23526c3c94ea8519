"""The frontier equals the linear program at every time, and whole clocks come close to the best combination."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from power.training.operating_points import Choice, Computation, efficient_choices, hull_of
from power.training.plans import at_full_clock, beside_straggler, planned_at, timeline, under_mean, within
from power.training.schedules import (
    BACKWARD,
    FORWARD,
    Iteration,
    Pass,
    Schedule,
    all_forward_all_backward,
    one_forward_one_backward,
    pipeline,
)
from power.training.time_energy_frontier import frontier
from tests.power.training.oracles import any_graph, made_up, min_mixed_j, min_whole_j

SCHEDULES = pytest.mark.parametrize("schedule", [one_forward_one_backward, all_forward_all_backward])


class TestSchedules:
    def test_one_forward_one_backward_matches_the_published_schedule(self) -> None:
        last, first = one_forward_one_backward(3, 4, 4), one_forward_one_backward(0, 4, 8)
        assert last == [each for m in range(4) for each in (Pass(FORWARD, m), Pass(BACKWARD, m))]
        assert [one.forward for one in first[:6]] == [True] * 4 + [False, True]

    @SCHEDULES
    @given(st.integers(1, 6), st.integers(1, 8))
    def test_every_pass_occurs_once_and_the_order_has_no_cycle(
        self, schedule: Schedule, stages: int, microbatches: int
    ) -> None:
        iteration = made_up(stages=stages, microbatches=microbatches, schedule=schedule)
        assert len({one.name for one in iteration.computations}) == 2 * stages * microbatches
        assert len(iteration.order) == len(iteration.computations)

    def test_even_stages_take_the_textbook_time(self) -> None:
        choices = (Choice(1.0, 1.0, 300.0),)
        iteration = pipeline(forward=[choices] * 4, backward=[choices] * 4, microbatches=8, blocked_w=70)
        assert at_full_clock(iteration).time_s == pytest.approx((8 + 4 - 1) * 2)

    def test_invalid_pipelines_are_refused(self) -> None:
        choices = (Choice(1.0, 1.0, 300.0),)
        with pytest.raises(RuleError, match="backward: must have as many stages as forward"):
            pipeline(forward=[choices], backward=[], microbatches=1, blocked_w=0)
        with pytest.raises(RuleError, match="microbatches: must be 1 to"):
            pipeline(forward=[choices], backward=[choices], microbatches=0, blocked_w=0)
        with pytest.raises(RuleError, match="blocked_w: must be from 0, got -1"):
            pipeline(forward=[choices], backward=[choices], microbatches=1, blocked_w=-1)
        one = Computation("a", 0, choices)
        with pytest.raises(RuleError, match="waits: must not go round in a circle"):
            Iteration((one, one), ((0, 1), (1, 0)), 0.0, 1)
        with pytest.raises(RuleError, match="energy_j from 0"):
            Computation("a", 0, (Choice(1.0, 1.0, -3.0),))


class TestChoices:
    def test_slower_choices_with_more_energy_are_dropped(self) -> None:
        choices = [Choice(1.0, 1.0, 10.0), Choice(0.8, 1.2, 9.0), Choice(0.5, 2.0, 9.5)]
        assert [one.clock for one in efficient_choices(choices, blocked_w=0)] == [1.0, 0.8]

    def test_choices_that_a_mixture_dominates_are_not_on_the_hull(self) -> None:
        choices = [Choice(1.0, 1.0, 10.0), Choice(0.8, 1.5, 9.5), Choice(0.5, 2.0, 4.0)]
        assert [one.clock for one in hull_of(choices, blocked_w=0)] == [1.0, 0.5]

    def test_power_while_blocked_keeps_slow_choices_on_the_hull(self) -> None:
        choices = [Choice(1.0, 1.0, 10.0), Choice(0.5, 2.0, 10.5)]
        assert len(hull_of(choices, blocked_w=0)) == 1
        assert len(hull_of(choices, blocked_w=1)) == 2


class TestFrontier:
    @SCHEDULES
    @pytest.mark.parametrize(("stages", "microbatches", "seed"), [(1, 2, 0), (2, 3, 1), (3, 4, 2), (4, 6, 3)])
    def test_the_frontier_equals_the_linear_program_at_every_time(
        self, schedule: Schedule, stages: int, microbatches: int, seed: int
    ) -> None:
        iteration = made_up(stages=stages, microbatches=microbatches, seed=seed, schedule=schedule)
        found = frontier(iteration)
        for share in (0.0, 0.03, 0.1, 0.35, 0.7, 0.98, 1.0):
            time_s = found.fastest_s + share * (found.slowest_s - found.fastest_s)
            assert found.at(time_s).energy_j == pytest.approx(min_mixed_j(iteration, time_s), rel=1e-6)
        assert min_mixed_j(iteration, found.fastest_s * (1 - 1e-3)) is None

    @given(st.integers(0, 10_000), st.floats(0.01, 0.99))
    def test_the_frontier_equals_the_linear_program_on_any_graph(self, seed: int, share: float) -> None:
        iteration = any_graph(seed)
        found = frontier(iteration)
        time_s = found.fastest_s + share * (found.slowest_s - found.fastest_s)
        assert found.at(time_s).energy_j == pytest.approx(min_mixed_j(iteration, time_s), rel=1e-6)

    def test_identical_computations_keep_the_bends_of_their_curve(self) -> None:
        """All times lie on one line, the energies do not."""
        curve = (Choice(1.0, 1.0, 100.0), Choice(0.8, 2.0, 60.0), Choice(0.5, 3.0, 50.0))
        alike = (Computation("a", 0, curve), Computation("b", 1, curve))
        found = frontier(Iteration(alike, (), blocked_w=0.0, stages=2))
        assert [(point.time_s, point.energy_j) for point in found.points] == [(1, 200), (2, 120), (3, 100)]

    @given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
    def test_the_frontier_is_convex_and_falls_to_the_least_energy(
        self, seed: int, stages: int, microbatches: int
    ) -> None:
        found = frontier(made_up(stages=stages, microbatches=microbatches, seed=seed, uneven=1.0))
        points = found.points
        slopes = []
        for fast, slow in pairwise(points):
            assert slow.time_s > fast.time_s
            slopes.append((slow.energy_j - fast.energy_j) / (slow.time_s - fast.time_s))
        falling = slopes[: points.index(found.min_energy)]
        assert all(one < 1e-6 for one in falling)
        assert all(one > -1e-6 for one in slopes[len(falling) :])
        assert all(one <= other + 1e-6 * abs(one) for one, other in pairwise(slopes))

    def test_the_frontier_starts_at_the_full_clock_time_and_ends_at_its_last_point(self) -> None:
        iteration = made_up(stages=3, microbatches=4)
        found = frontier(iteration)
        assert found.fastest_s == pytest.approx(at_full_clock(iteration).time_s)
        assert found.points[0].energy_j < at_full_clock(iteration).energy_j
        assert found.at(10 * found.slowest_s) is found.points[-1]

    def test_even_stages_of_one_microbatch_have_nothing_off_the_critical_path(self) -> None:
        iteration = made_up(stages=3, microbatches=1)
        assert frontier(iteration).points[0].energy_j == pytest.approx(at_full_clock(iteration).energy_j)


class TestPlans:
    @given(st.integers(0, 10_000), st.floats(0, 1))
    @settings(max_examples=6)
    def test_whole_clocks_come_within_3_percent_of_the_best_combination(self, seed: int, share: float) -> None:
        iteration = made_up(stages=2, microbatches=2, seed=seed, uneven=1.0)
        found = frontier(iteration)
        deadline_s = found.fastest_s + share * (found.min_energy.time_s - found.fastest_s)
        plan, best_j = within(found, deadline_s), min_whole_j(iteration, deadline_s)
        assert plan.time_s <= deadline_s * (1 + 1e-9)
        assert plan.bound_j <= best_j * (1 + 1e-9)
        assert best_j * (1 - 1e-9) <= plan.energy_j <= 1.03 * best_j

    def test_a_deadline_that_no_clock_meets_is_refused(self) -> None:
        found = frontier(made_up(stages=2, microbatches=2))
        with pytest.raises(RuleError, match="deadline_s: must be at least"):
            within(found, 0.9 * found.fastest_s)

    def test_a_plan_takes_no_time_that_saves_no_energy(self) -> None:
        found = frontier(made_up(stages=4, microbatches=6, clocks=(1.0, 0.8, 0.6, 0.4)))
        assert found.min_energy.time_s < found.slowest_s
        assert within(found, 10 * found.slowest_s).time_s <= found.min_energy.time_s * (1 + 1e-9)

    def test_a_plan_beside_a_straggler_saves_more_energy(self) -> None:
        found = frontier(made_up(stages=4, microbatches=6))
        alone, beside = (beside_straggler(found, factor * found.fastest_s) for factor in (0.5, 1.2))
        assert alone.time_s <= found.fastest_s * (1 + 1e-9)
        assert beside.time_s <= 1.2 * found.fastest_s
        assert beside.energy_j < alone.energy_j

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
    def test_a_plan_under_a_mean_power_limit_is_as_fast_as_whole_clocks_allow(self, share: float) -> None:
        found = frontier(made_up(stages=3, microbatches=4, clocks=(1.0, 0.9, 0.8, 0.7, 0.6)))
        low_w, high_w = (planned_at(found, time_s).mean_w for time_s in (found.slowest_s, found.fastest_s))
        limit_w = low_w + share * (high_w - low_w)
        plan = under_mean(found, limit_w)
        assert plan.mean_w <= limit_w
        if share == 1.0:
            assert plan.time_s == pytest.approx(found.fastest_s)
        with pytest.raises(RuleError, match="limit_w: must be at least"):
            under_mean(found, 0.9 * low_w)

    @given(st.integers(0, 10_000))
    def test_the_timeline_integrates_to_the_energy(self, seed: int) -> None:
        iteration = made_up(stages=3, microbatches=3, seed=seed)
        plan = within(frontier(iteration), 1.1 * at_full_clock(iteration).time_s)
        times, watts = timeline(iteration, plan.choices)
        assert float((watts * (times[1:] - times[:-1])).sum()) == pytest.approx(plan.energy_j)
        assert times[-1] == pytest.approx(plan.time_s)
