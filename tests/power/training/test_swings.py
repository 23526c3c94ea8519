"""Staggering against every combination of offsets and against jobs that slip, ramps against their limit."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from power.training.plans import plan_within, timeline, within
from power.training.ramps import STEP_S, options_under, smoothed
from power.training.staggering import best_offsets, clock_within, grouped_by_period, stagger, wait_s
from power.training.swings import largest_rise_w, stretched, swing_of, widened
from power.training.time_energy_frontier import frontier
from power.workload.workload import TrainingJob
from tests.power.training.oracles import made_up


def job(
    name: str = "a", *, iteration_s: float = 5.0, share: float = 0.75, servers: int = 4, trough_w: float = 2000.0
) -> TrainingJob:
    return TrainingJob(
        name=name,
        servers=servers,
        iteration_s=iteration_s,
        compute_share=share,
        compute_w=5200.0,
        trough_w=trough_w,
    )


JOBS = st.lists(
    st.builds(
        job,
        name=st.sampled_from("abc"),
        iteration_s=st.floats(4, 6),
        share=st.floats(0.3, 0.9),
        servers=st.integers(1, 6),
        trough_w=st.floats(500, 5200),
    ),
    min_size=1,
    max_size=5,
)


class TestSwings:
    @given(st.floats(1, 20), st.floats(0.1, 0.95), st.floats(0.3, 1))
    def test_the_profile_holds_the_energy_of_an_iteration(self, iteration_s: float, share: float, clock: float) -> None:
        one = job(iteration_s=iteration_s, share=share)
        swing = swing_of(one, steps=2000, clock=clock)
        above_w = (one.compute_w - one.trough_w) * clock**one.clock_exponent
        mean_w = one.servers * (one.trough_w + share * above_w)
        assert float(swing.mean()) == pytest.approx(mean_w, rel=1e-3)

    @given(st.floats(4, 6), st.floats(0.3, 0.9), st.floats(1, 1.3))
    def test_a_stretched_job_does_the_same_work_at_a_lower_clock(
        self, iteration_s: float, share: float, slowdown: float
    ) -> None:
        one = job(iteration_s=iteration_s, share=share)
        slow = stretched(one, slowdown * iteration_s)
        clock = ((slow.compute_w - one.trough_w) / (one.compute_w - one.trough_w)) ** (1 / one.clock_exponent)
        assert slow.iteration_s * (1 - slow.compute_share) == pytest.approx(iteration_s * (1 - share))
        assert slow.iteration_s * slow.compute_share * clock == pytest.approx(iteration_s * share)

    def test_the_largest_rise_is_found_across_the_end_of_the_period(self) -> None:
        watts = np.array([5.0, 5, 5, 1, 2, 3])
        assert largest_rise_w(watts, step_s=1.0, within_s=1.0) == 2
        assert largest_rise_w(watts, step_s=1.0, within_s=3.0) == 4

    @given(st.lists(st.floats(0, 100), min_size=2, max_size=12), st.integers(1, 15))
    def test_the_largest_rise_is_the_maximum_over_all_pairs(self, listed: list[float], steps: int) -> None:
        watts = np.array(listed)
        pairs = product(range(len(watts)), range(min(steps, len(watts)) + 1))
        best = max(watts[at] - watts[(at - back) % len(watts)] for at, back in pairs)
        assert largest_rise_w(watts, step_s=1.0, within_s=float(steps)) == pytest.approx(best)

    def test_a_widened_swing_covers_every_slip_up_to_its_limit(self) -> None:
        swing = swing_of(job(), steps=50)
        wide = widened(swing, 0.3, step_s=job().iteration_s / 50)
        assert all(np.all(wide >= np.roll(swing, shift)) for shift in (-3, -2, -1, 0, 1, 2, 3))
        assert np.any(wide < np.roll(swing, 4))


class TestStaggering:
    @given(st.integers(0, 10_000), st.integers(2, 4))
    @settings(max_examples=8)
    def test_local_search_finds_the_best_of_all_combinations(self, seed: int, jobs: int) -> None:
        random = np.random.default_rng(seed)
        steps = 28 if jobs == 4 else 10  # with four jobs beyond the exact enumeration
        levels = random.integers(1, 5, size=jobs)[:, None]
        lengths = random.integers(1, steps, size=jobs)[:, None]
        profiles = np.where(np.arange(steps)[None, :] < lengths, levels, 0).astype(float)
        turned = [[np.roll(profile, shift) for shift in range(steps)] for profile in profiles]
        best = min(
            float(np.max(profiles[0] + sum(turned[at + 1][shift] for at, shift in enumerate(rest))))
            for rest in product(range(steps), repeat=jobs - 1)
        )
        offsets = best_offsets(profiles, seed=seed)
        found = sum(np.roll(profile, shift) for profile, shift in zip(profiles, offsets, strict=True))
        assert float(np.max(found)) == best

    @given(JOBS, st.integers(0, 1000))
    @settings(max_examples=12)
    def test_slips_and_drift_never_exceed_the_peak(self, jobs: list[TrainingJob], seed: int) -> None:
        named = [one.model_copy(update={"name": f"{one.name}{at}"}) for at, one in enumerate(jobs)]
        found = stagger(named, slip_s=0.2, max_slowdown=0.1, steps=48)
        random = np.random.default_rng(seed)
        starts = {start.name: start for start in found.starts}
        slide = {start.period_s: random.uniform(0, 100) for start in found.starts}
        at = np.linspace(0, 60, 3000)
        total = np.zeros_like(at)
        for one in named:
            start = starts[one.name]
            begun = start.offset_s + slide[start.period_s] + random.uniform(-0.1, 0.1)
            slow = stretched(one, start.period_s)
            phase = ((at - begun) % start.period_s) / start.period_s
            total += one.servers * np.where(phase < slow.compute_share, slow.compute_w, one.trough_w)
        assert total.max() <= found.peak_w + 1e-6
        assert found.mean_w - 1e-6 <= found.peak_w <= found.together_w + 1e-6
        assert all(0 <= start.slowdown <= 0.1 + 1e-9 for start in found.starts)

    def test_four_jobs_are_staggered_by_their_troughs(self) -> None:
        jobs = [job(name, iteration_s=4.0, share=0.75) for name in "abcd"]
        found = stagger(jobs, slip_s=0.0)
        assert found.peak_w == pytest.approx(4 * (3 * 5200 + 2000))
        assert found.together_w == 4 * 4 * 5200
        assert found.rise_w <= 4 * 3200 < found.together_rise_w

    def test_jobs_with_different_periods_count_at_their_peaks(self) -> None:
        jobs = [job("a", iteration_s=4.0, share=0.4), job("b", iteration_s=5.0, share=0.45)]
        assert stagger(jobs, slip_s=0.0, max_slowdown=0.1).peak_w == 2 * 4 * 5200
        slowed = stagger(jobs, slip_s=0.0, max_slowdown=0.25)
        assert slowed.peak_w < 2 * 4 * 5200
        assert {start.name: start.slowdown for start in slowed.starts} == {"b": 0.0, "a": pytest.approx(0.25)}

    def test_a_slip_longer_than_the_trough_leaves_no_gain(self) -> None:
        found = stagger([job("a"), job("b")], slip_s=2.0)
        assert found.peak_w == found.together_w

    def test_jobs_form_the_fewest_possible_groups(self) -> None:
        jobs = [job(iteration_s=each) for each in (4.0, 4.1, 4.19, 4.3, 5.0)]
        groups = grouped_by_period(jobs, max_slowdown=0.05)
        assert [[one.iteration_s for one in group] for group in groups] == [[5.0], [4.3, 4.19, 4.1], [4.0]]

    def test_a_job_waits_for_its_offset(self) -> None:
        assert wait_s(phase_s=1.0, wanted_s=1.5, period_s=4.0) == 0.5
        assert wait_s(phase_s=1.5, wanted_s=1.0, period_s=4.0) == 3.5


class TestRamps:
    def test_without_a_limit_nothing_changes(self) -> None:
        plain = smoothed(job(), rise_w_per_s=np.inf)
        assert plain.slowdown == pytest.approx(0, abs=2 * STEP_S)
        assert plain.energy_ratio == pytest.approx(1, abs=1e-3)
        assert plain.rise_w == 3200

    @given(st.floats(200, 5000), st.floats(0, 5200), st.floats(0.3, 0.9))
    def test_power_never_rises_faster_than_the_ramp_above_its_first_clock(
        self, rise: float, floor_w: float, share: float
    ) -> None:
        one = job(share=share)
        found = smoothed(one, rise_w_per_s=rise, floor_w=floor_w)
        begins_w = one.trough_w + (one.compute_w - one.trough_w) * 0.2**one.clock_exponent
        climbs = np.diff(np.append(found.watts, found.watts[0]))
        steep = climbs > rise * STEP_S + 1e-6
        assert np.all(found.watts[(np.flatnonzero(steep) + 1) % len(found.watts)] <= max(begins_w, found.floor_w) + 1)
        assert found.watts.max() <= one.compute_w
        assert found.watts.min() >= found.floor_w

    def test_a_slower_ramp_takes_longer(self) -> None:
        slowdowns = [smoothed(job(), rise_w_per_s=rise).slowdown for rise in (500, 1000, 2000, 4000)]
        assert slowdowns == sorted(slowdowns, reverse=True)

    @pytest.mark.parametrize("rise_w", [400.0, 800.0, 1600.0, 3000.0])
    def test_every_option_keeps_the_limit(self, rise_w: float) -> None:
        options = options_under(job(), rise_w=rise_w)
        assert options
        assert all(one.rise_w <= rise_w * (1 + STEP_S) for one in options)
        assert [one.slowdown for one in options] == sorted(one.slowdown for one in options)
        assert [one.energy_ratio for one in options] == sorted((one.energy_ratio for one in options), reverse=True)

    def test_invalid_limits_are_refused(self) -> None:
        with pytest.raises(RuleError, match="rise_w_per_s: must be above 0, got 0"):
            smoothed(job(), rise_w_per_s=0)
        with pytest.raises(RuleError, match="floor_w: must be from 0 to 5200"):
            smoothed(job(), rise_w_per_s=100, floor_w=6000)
        with pytest.raises(RuleError, match="rise_w: must be above 0, got -1"):
            options_under(job(), rise_w=-1)


class TestCaps:
    @given(JOBS, st.floats(0.7, 1.1))
    def test_the_clock_is_the_highest_that_fits(self, jobs: list[TrainingJob], share: float) -> None:
        share_w = share * sum(one.servers * one.compute_w for one in jobs)
        min_w = sum(o.servers * (o.trough_w + (o.compute_w - o.trough_w) * 0.2**o.clock_exponent) for o in jobs)
        if min_w > share_w:
            with pytest.raises(RuleError, match="share_w: must be at least"):
                clock_within(jobs, share_w=share_w)
            return
        cap = clock_within(jobs, share_w=share_w)
        assert cap.peak_w <= share_w + 1e-6
        higher = min(1.0, cap.clock + 1e-3)
        above = sum(o.servers * (o.trough_w + (o.compute_w - o.trough_w) * higher**o.clock_exponent) for o in jobs)
        assert cap.clock == 1.0 or above > share_w - 1e-6

    def test_staggering_allows_a_higher_clock(self) -> None:
        jobs = [job(name, iteration_s=4.0, share=0.6) for name in "abcd"]
        share_w = 0.85 * sum(one.servers * one.compute_w for one in jobs)
        plain = clock_within(jobs, share_w=share_w)
        apart = clock_within(jobs, share_w=share_w, staggered=stagger(jobs, slip_s=0.1))
        assert plain.clock < apart.clock
        assert plain.slowdown > apart.slowdown

    def test_the_clock_is_one_of_the_given_levels(self) -> None:
        cap = clock_within([job()], share_w=4 * 4700.0, levels=(1.0, 0.9, 0.8))
        assert cap.clock == 0.8

    def test_the_frontier_gives_the_fastest_plan_under_a_peak(self) -> None:
        found = frontier(made_up(stages=3, microbatches=4, clocks=(1.0, 0.9, 0.8, 0.7, 0.6)))
        fastest = within(found, found.fastest_s)
        highest_w = float(timeline(found.iteration, fastest.choices)[1].max())
        assert plan_within(found, share_w=highest_w) == fastest
        plan = plan_within(found, share_w=0.85 * highest_w)
        assert float(timeline(found.iteration, plan.choices)[1].max()) <= 0.85 * highest_w
        assert plan.time_s > fastest.time_s
        with pytest.raises(RuleError, match="share_w: must be at least"):
            plan_within(found, share_w=0.1 * highest_w)
