"""Properties of every run: nothing is lost, runs are reproducible, and skipping calm ticks changes nothing."""

from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from power.controls import Clocks, Priority, Routing, Setting
from power.policies import policy_named
from power.simulator import Outcome, RowSpec, simulate
from power.workload import TrainingJob, Work
from power.workload.generated import generated_work
from tests.power.simulator.rows import SCRIPTS, SMALL, Scripted, uncapped, work_of, works

HALF = 0.5
LOW_ONLY = ((Priority.LOW, 1),)
EXACT = RowSpec(budget_w=1e8, model=SMALL, bias=0.0)


def run(work: Work, *steps: tuple[float, Setting], delay_s: float = 0.0, spec: RowSpec = EXACT) -> Outcome:
    """The outcome of a script on a small row."""
    return simulate(spec, work, policy=Scripted(steps, command_delay_s=delay_s), bare=True)


def slow(clock: float) -> Setting:
    """Every control at one clock."""
    return Setting(Clocks(*[clock] * 5))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(work=works(), script=SCRIPTS)
def test_energy_equals_the_meter_readings_and_no_request_is_lost(work: Work, script: Scripted) -> None:
    outcome = simulate(RowSpec(budget_w=1e8, model=SMALL), work, policy=script, bare=True)
    assert outcome.energy_kwh == pytest.approx(outcome.readings_w.sum() * 2 / 3.6e6, rel=1e-12)
    requests = outcome.requests
    assert len(requests) == len(work.arrival_s)
    assert sorted(requests.arrival_s) == work.arrival_s.tolist()
    for earlier, later in (("arrival_s", "start_s"), ("start_s", "first_s"), ("first_s", "finish_s")):
        before, after = getattr(requests, earlier), getattr(requests, later)
        assert not np.any(~np.isnan(after) & np.isnan(before))
        assert not np.any(after < before - 1e-9)
    assert np.all(outcome.readings_w <= work.servers * 1.15 * max(SMALL.prompt_w(), 1500.0))
    assert np.all(outcome.readings_w >= work.servers * 0.85 * SMALL.parked_w)


def test_each_pool_serves_requests_in_order_of_arrival() -> None:
    outcome = run(work_of([(at / 7, at % 2, 900, 40) for at in range(200)]))
    for pool in (0, 1):
        started = outcome.requests.start_s[outcome.requests.pool == pool]
        started = started[~np.isnan(started)]
        assert np.all(np.diff(started) >= 0)


def test_a_seed_gives_the_same_run_and_another_seed_other_servers() -> None:
    work = generated_work(servers=8, days=0.05, seed=3)
    spec = RowSpec(budget_w=40e3)
    once, again, other = (simulate(spec, work, policy=policy_named("polca"), seed=seed) for seed in (1, 1, 2))
    assert once.readings_w.tobytes() == again.readings_w.tobytes()
    assert once.requests.finish_s.tobytes() == again.requests.finish_s.tobytes()
    assert once.readings_w.tobytes() != other.readings_w.tobytes()


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("name", ["none", "threshold-low", "polca"])
def test_skipping_calm_ticks_changes_nothing(name: str, bare: bool) -> None:  # noqa: FBT001
    work = generated_work(servers=8, days=0.08, seed=1)
    spec = RowSpec(budget_w=uncapped(RowSpec(budget_w=1e9), work).peak_w * 0.97)
    every_tick, skipped = (
        simulate(spec, work, policy=policy_named(name), bare=bare, skip_calm=skip) for skip in (False, True)
    )
    assert skipped.ticks < every_tick.ticks
    assert skipped.readings_w.tobytes() == every_tick.readings_w.tobytes()
    assert skipped.requests.finish_s.tobytes() == every_tick.requests.finish_s.tobytes()
    assert (skipped.brakes, skipped.clocks) == (every_tick.brakes, every_tick.clocks)


def test_one_request_takes_the_time_and_energy_of_its_server_model() -> None:
    outcome = run(work_of([(1.0, 0, 1000, 100)], pools=LOW_ONLY, duration_s=20.0))
    prompt_s, tokens_s = SMALL.prompt_time_s(1000), 100 * SMALL.token_s
    assert outcome.requests.first_s[0] == pytest.approx(1.0 + prompt_s)
    assert outcome.requests.finish_s[0] == pytest.approx(1.0 + prompt_s + tokens_s)
    joules = prompt_s * SMALL.prompt_w() + tokens_s * SMALL.token_w() + (20 - prompt_s - tokens_s) * SMALL.idle_w
    assert outcome.energy_kwh * 3.6e6 == pytest.approx(joules)
    assert outcome.utilisation == pytest.approx((prompt_s + tokens_s) / 20)


def test_a_clock_change_rescales_a_request_in_progress() -> None:
    work = work_of([(0.0, 0, 1000, 400)], pools=LOW_ONLY, duration_s=60.0)
    outcome = run(work, (10.0, slow(HALF)))
    written_s = 10.0 - SMALL.prompt_time_s(1000)
    left_s = 400 * SMALL.token_s - written_s
    assert outcome.requests.finish_s[0] == pytest.approx(10.0 + left_s * SMALL.token_slowdown(HALF))


def test_a_clock_change_rescales_a_prompt_in_progress() -> None:
    work = work_of([(3.5, 0, 2000, 1)], pools=LOW_ONLY, duration_s=30.0)
    outcome = run(work, (4.0, slow(HALF)))
    left_s = SMALL.prompt_time_s(2000) - 0.5
    assert outcome.requests.first_s[0] == pytest.approx(4.0 + left_s * SMALL.prompt_slowdown(HALF))


@pytest.mark.parametrize("clock", [0.9, 0.6, 0.3])
def test_a_lower_clock_makes_no_request_faster_and_no_peak_higher(clock: float) -> None:
    work = work_of([(at * 1.7, at % 2, 700, 90) for at in range(60)])
    full, low = run(work), run(work, (0.0, slow(clock)))
    finished = low.requests.finished
    assert np.all(low.requests.finish_s[finished] >= full.requests.finish_s[finished] - 1e-9)
    assert low.peak_w < full.peak_w


def test_an_order_takes_its_delay_and_a_newer_one_waits_for_it() -> None:
    work = work_of([(0.0, 0, 10, 4000)], pools=LOW_ONLY, duration_s=60.0)
    outcome = run(work, (10.0, slow(0.5)), (14.0, slow(0.25)), (16.0, slow(0.7)), delay_s=20.0)
    power = [round(float(watts), 3) for watts in outcome.readings_w]
    levels = [SMALL.token_w(clock) for clock in (1.0, 0.5, 0.7)]
    assert power[13:15] == pytest.approx([levels[0]] * 2, abs=1e-2)
    assert power[16:24] == pytest.approx([levels[1]] * 8, abs=1e-2)  # from 30 s; the one of 14 s was never sent
    assert power[26:] == pytest.approx([levels[2]] * 4, abs=1e-2)  # from 50 s
    assert outcome.commands == 2


def test_requests_share_a_server_up_to_its_memory_limit() -> None:
    requests = [(at * 0.001, 0, 1, 200) for at in range(5)]
    work = work_of([(4.5, 0, 1, 1), *((at + 5.0, 0, 1, 200) for at, _, _, _ in requests)], pools=LOW_ONLY)
    outcome = run(work, (2.0, Setting(routing=Routing(low_together=2))))
    starts = np.sort(outcome.requests.start_s)[1:]
    prompt_s = SMALL.prompt_time_s(1)
    assert starts[:3] == pytest.approx([5.0, 5.0 + prompt_s, 5.0 + 2 * prompt_s], abs=1e-3)
    assert starts[3] > 5.0 + 200 * SMALL.token_s  # memory fits three


def test_the_router_packs_before_it_uses_an_idle_server() -> None:
    work = work_of([(at * 3.0 + 5, 0, 10, 2000) for at in range(4)], pools=((Priority.LOW, 4),))
    spread, packed = run(work), run(work, (2.0, Setting(routing=Routing(low_together=2))))
    assert len(set(spread.requests.server)) == 4
    assert len(set(packed.requests.server)) == 2
    assert packed.energy_kwh < spread.energy_kwh


def test_idle_servers_are_parked_and_a_queue_wakes_them() -> None:
    work = work_of([(60.0 + at, 0, 10, 600) for at in range(4)], pools=((Priority.LOW, 4),), duration_s=180.0)
    parked = Scripted(((10.0, Setting(routing=Routing(parked_share=0.75))),))
    spec = RowSpec(budget_w=1e9, model=SMALL, bias=0.0, together=1)
    outcome = simulate(spec, work, policy=parked, bare=True)
    assert outcome.readings_w[15] == pytest.approx(SMALL.idle_w + 3 * SMALL.parked_w)
    assert outcome.requests.wait_s.min() == 0.0
    others = np.sort(outcome.requests.start_s)[1:]
    assert others == pytest.approx([62.0 + SMALL.wake_s, 64.0 + SMALL.wake_s, 64.0 + SMALL.wake_s], abs=1e-9)


def test_a_smaller_parked_share_wakes_the_surplus() -> None:
    outcome = run(
        work_of([(100.0, 0, 1, 1)], pools=((Priority.LOW, 4),)),
        (10.0, Setting(routing=Routing(parked_share=1.0))),
        (40.0, Setting(routing=Routing(parked_share=0.5))),
    )
    asleep = 4 * SMALL.parked_w
    half = 2 * SMALL.parked_w + 2 * SMALL.idle_w  # to wake draws as much as to idle
    assert outcome.readings_w[10] == pytest.approx(asleep)
    assert outcome.readings_w[25] == pytest.approx(half)


def test_prompts_wait_for_power_and_the_row_stays_below_the_admission_limit() -> None:
    work = work_of(
        [(5.0 + at * 0.01, at % 2, 3000, 100) for at in range(12)], pools=((Priority.LOW, 6), (Priority.HIGH, 6))
    )
    hold_w = 6 * SMALL.prompt_w() + 6 * SMALL.idle_w
    free, held = run(work), run(work, (2.0, Setting(low_limit_w=hold_w, high_limit_w=hold_w)))
    assert free.peak_w > hold_w
    assert held.peak_w <= hold_w
    assert held.requests.finished.all()
    high, low = (held.requests.admission_wait_s[held.requests.of(priority)].max() for priority in reversed(Priority))
    assert high < low
    assert free.requests.admission_wait_s.max() == 0.0


def test_low_priority_prompts_use_the_high_limit_after_their_patience() -> None:
    work = work_of([(10.0, 0, 1000, 10)], pools=LOW_ONLY)
    outcome = run(work, (2.0, Setting(low_limit_w=1.0, high_limit_w=inf)))
    assert outcome.requests.admission_wait_s[0] == pytest.approx(EXACT.patience_s, abs=2.0)
    starved = run(work, (2.0, Setting(low_limit_w=1.0, high_limit_w=1.0)))
    assert not starved.requests.finished[0]
    assert np.isnan(starved.requests.latency_s[0])


def test_admission_is_corrected_by_the_meter() -> None:
    """Nominal servers draw half as much: without correction, twice too many prompts would start."""
    half = SMALL.model_copy(update={"base_w": SMALL.base_w / 2, "beside": 1.0, "gpus": 1})
    work = work_of([(at * 0.05, 0, 3000, 60) for at in range(1200)], pools=((Priority.LOW, 10),), duration_s=60.0)
    hold_w = 5 * SMALL.prompt_w() + 5 * SMALL.idle_w
    setting = Setting(low_limit_w=hold_w, high_limit_w=hold_w)
    spec = EXACT.model_copy(update={"nominal": half, "smoothing": 0.5})
    without_smoothing = spec.model_copy(update={"smoothing": 0.0})
    corrected, uncorrected = (run(work, (2.0, setting), spec=each) for each in (spec, without_smoothing))
    assert uncorrected.readings_w[20:].mean() > 1.2 * hold_w
    assert corrected.readings_w[20:].mean() == pytest.approx(hold_w, rel=0.08)


def test_training_swings_and_slows_with_its_clock() -> None:
    job = TrainingJob(
        name="job", servers=3, iteration_s=8.0, compute_share=0.75, compute_w=2000.0, trough_w=800.0, start_s=4.0
    )
    work = work_of([(1.0, 0, 1, 1)], pools=LOW_ONLY, duration_s=86.0, jobs=[job])
    full = run(work)
    assert full.iterations.tolist() == [10]
    assert full.readings_w[1] == pytest.approx(4 * SMALL.idle_w)
    assert full.readings_w[2:6] == pytest.approx([6000 + SMALL.idle_w] * 3 + [2400 + SMALL.idle_w])
    slowed = run(work, (4.0, Setting(Clocks(training=0.5))))
    assert slowed.iterations.tolist() == [int(82 // (6.0 / 0.5 + 2.0))]
    assert slowed.readings_w[3] == pytest.approx(3 * (800 + 1200 * 0.5**1.3) + SMALL.idle_w)
