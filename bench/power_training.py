"""Training under a power budget: energy off the critical path, staggered swings, ramps, and a row of which a quarter
trains.

- frontier: pipelines of 1F1B with slower stages; a pass takes 100 ms forward and 200 ms backward on the fastest stage.
  Clock curves: the shipped sweeps of V100 and A40 (Zeus); a waiting board draws a quarter of its computing power.  All
  else is assumed.  Savings are against every pass at full clock.
- stagger: ten jobs of four servers (`power.workload.training_jobs`), an hour in the row simulator, without and with
  offsets; jobs are slowed to the longest period of those that train the same model.  Slips of 50 ms are allowed for.
- ramp: the cost in time or energy of keeping one server's 2 s rise within a share of provisioned power.
- row: that of `power_training_share`, 48 servers on the budget of 40 under the ladder in the guard, a quarter of them
  training: jobs as they come, staggered, and at the clock that keeps their peak within a share of the budget.  Latency
  is against the same requests uncapped, one per server, and against the uncapped row with the same right to batch; each
  figure is the worst of the seeds.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean

import numpy as np

from bench.harness import Row
from bench.power_rows import Case, budget_w, first_token_s, impacts, largest_rise, uncapped, work_of
from fleet.errors import FleetwrightError
from power.controls import Priority
from power.measured_models import builtin_shares
from power.measured_models.limits import SENSITIVITY
from power.policies.registry import policy_named
from power.simulator import Outcome, RowSpec, simulate
from power.training.operating_points import choices_of
from power.training.plans import Plan, at_full_clock, beside_straggler, within
from power.training.ramps import options_under, smoothed
from power.training.schedules import Iteration, pipeline
from power.training.staggering import Staggered, clock_within, stagger
from power.training.swings import METER_S, at_clock, stretched
from power.training.time_energy_frontier import frontier
from power.workload import TrainingJob, Work, training_jobs
from power.workload.jobs import PROVISIONED_W, TRAINED

CLOCKS = tuple(round(1 - 0.025 * step, 3) for step in range(25))  # 1410 MHz in steps of 35
PIPELINES = ((4, 8, 0.0), (4, 8, 0.1), (4, 8, 0.25), (4, 24, 0.1), (8, 16, 0.1))
SLOWDOWNS, STRAGGLER = (0.0, 0.01, 0.02), 0.1
FULL_W, BLOCKED_SHARE = 300.0, 0.25
RISES = (0.09, 0.2)  # of provisioned: the 2 s rise of a row of inference (POLCA), and twice that
SERVERS, TRAINING_SHARE = 48, 0.25
SHARES = (0.28, 0.27)  # of the budget, for those that train; uncapped their peaks take 0.29
SLIP_S, MAX_SLOWDOWN = 0.05, 0.11  # of one model's jobs, whose periods differ by up to that
SEEDS, ROW_SEEDS, ROW_DAYS = 5, 3, 1.0


def run() -> list[Row]:
    return [*_frontiers(), *_staggered(), *_ramps(), *_rows()]


def synthetic_iteration(stages: int, microbatches: int, uneven: float, *, board: str) -> Iteration:
    """A pipeline whose last stage is the slowest, like one with the vocabulary."""
    curve = next(one for one in builtin_shares().sweeps if one.name == board)
    times_s = 0.1 * np.linspace(1, 1 + uneven, stages)
    forward, backward = (
        [
            choices_of(time_s=way * time_s, power_w=FULL_W, curve=curve, sensitivity=SENSITIVITY, clocks=CLOCKS)
            for time_s in times_s
        ]
        for way in (1.0, 2.0)
    )
    return pipeline(forward=forward, backward=backward, microbatches=microbatches, blocked_w=BLOCKED_SHARE * FULL_W)


def _frontiers() -> Iterator[Row]:
    for board, pipelines in (("V100", PIPELINES), ("A40", PIPELINES[:3])):
        for stages, microbatches, uneven in pipelines:
            iteration = synthetic_iteration(stages, microbatches, uneven, board=board)
            started_s = time.process_time()
            found = frontier(iteration)
            used_s = time.process_time() - started_s
            full = at_full_clock(iteration)
            plans = [within(found, (1 + share) * found.fastest_s) for share in SLOWDOWNS]
            straggler_s = (1 + STRAGGLER) * found.fastest_s
            beside = beside_straggler(found, straggler_s)
            yield {
                "case": f"frontier {stages} x {microbatches}, stages to +{uneven:.0%}, {board}",
                "computations": len(iteration.computations),
                "bends": len(found.points),
                "cpu_s": used_s,
                **{
                    f"saved_at_+{share:.0%}": 1 - plan.energy_j / full.energy_j
                    for share, plan in zip(SLOWDOWNS, plans, strict=True)
                },
                f"saved_beside_+{STRAGGLER:.0%}": 1
                - _until(straggler_s, beside, iteration) / _until(straggler_s, full, iteration),
                "max_energy_saving": 1 - found.min_energy.energy_j / full.energy_j,
                "slowdown_at_max_energy_saving": found.min_energy.time_s / found.fastest_s - 1,
                "above_bound": max(plan.energy_j / plan.bound_j - 1 for plan in plans),
            }


def _until(time_s: float, plan: Plan, iteration: Iteration) -> float:
    """Energy until another pipeline is done."""
    return plan.energy_j + iteration.blocked_w * iteration.stages * (time_s - plan.time_s)


def _staggered() -> Iterator[Row]:
    for seed in range(SEEDS):
        jobs = training_jobs(servers=40, seed=seed)
        found, apart = _apart(jobs, seed)
        plain, after = _hour(jobs), _hour(apart)
        provisioned_w = 40 * PROVISIONED_W
        yield {
            "case": f"stagger 10 jobs, seed {seed}",
            "peak_share": plain.peak_w / provisioned_w,
            "staggered_peak_share": after.peak_w / provisioned_w,
            "planned_peak_share": found.peak_w / provisioned_w,
            "mean_share": found.mean_w / provisioned_w,
            "rise_2s_share": largest_rise(plain, 2.0),
            "staggered_rise_2s_share": largest_rise(after, 2.0),
            "mean_slowdown": mean(start.slowdown for start in found.starts),
        }


def _ramps() -> Iterator[Row]:
    for name, job in _examples().items():
        for rise in RISES:
            options = options_under(job, rise_w=rise * PROVISIONED_W)
            ramp = smoothed(job, rise_w_per_s=rise * PROVISIONED_W / METER_S)
            yield {
                "case": f"ramp {name}, 2 s rise to {rise:.0%}",
                "rise_2s_share": (job.compute_w - job.trough_w) / PROVISIONED_W,
                "best_slowdown": options[0].slowdown,
                "best_energy_ratio": options[0].energy_ratio,
                "best_floor_share": options[0].floor_w / PROVISIONED_W,
                "ramp_alone_slowdown": ramp.slowdown,
                "ramp_alone_energy_ratio": ramp.energy_ratio,
                "ramp_alone_rise_share": ramp.rise_w / PROVISIONED_W,
                "options": len(options),
            }


def _apart(jobs: Sequence[TrainingJob], seed: int) -> tuple[Staggered, tuple[TrainingJob, ...]]:
    found = stagger(jobs, slip_s=SLIP_S, max_slowdown=MAX_SLOWDOWN, seed=seed)
    starts = {start.name: start for start in found.starts}
    slow = (stretched(job, starts[job.name].period_s) for job in jobs)
    return found, tuple(job.model_copy(update={"start_s": starts[job.name].offset_s}) for job in slow)


def _rows() -> Iterator[Row]:
    cases = [
        Case(servers=SERVERS, policy="ladder", seed=seed, days=ROW_DAYS, training_share=TRAINING_SHARE)
        for seed in range(ROW_SEEDS)
    ]
    by_case = [list(_ways(case)) for case in cases]
    for at, how in enumerate(("as they come", "apart", *(f"capped to {share:.0%} of the budget" for share in SHARES))):
        yield {"case": f"row of 48 on 40, 12 training, {how}", **_worst([ways[at] for ways in by_case])}


def _ways(case: Case) -> Iterator[dict[str, float]]:
    """Jobs as they come, staggered, and capped to each share."""
    work, limit_w = work_of(case), budget_w(case.yardstick)
    capped = [_capped(work.jobs, share_w=share * limit_w) for share in SHARES]
    for jobs in (work.jobs, _apart(work.jobs, case.seed)[1], *capped):
        yield _row(case, limit_w, replace(work, jobs=jobs))


def _capped(jobs: Sequence[TrainingJob], *, share_w: float) -> tuple[TrainingJob, ...]:
    clock = clock_within(jobs, share_w=share_w).clock
    return tuple(at_clock(job, clock) for job in jobs)


def _row(case: Case, limit_w: float, work: Work) -> dict[str, float]:
    policy = policy_named(case.policy, kinds=(case.truth,), jobs=work.jobs)
    outcome = simulate(RowSpec(budget_w=limit_w), work, policy=policy, seed=case.seed)
    before, batched = uncapped(case.uncapped), uncapped(case.uncapped_batched)
    return {
        "brakes": float(outcome.brakes),
        "peak_utilization": outcome.peak_utilization,
        "seconds_over_budget": outcome.seconds_over_budget,
        "rise_2s_share": largest_rise(outcome, 2.0),
        "training_slowdown": float(np.sum(before.iterations)) / max(1.0, float(np.sum(outcome.iterations))) - 1,
        **_impacts(before, outcome),
        **{f"{name}_against_batched": impact for name, impact in _impacts(batched, outcome).items()},
    }


def _impacts(before: Outcome, outcome: Outcome) -> dict[str, float]:
    last, first = impacts(before, outcome), impacts(before, outcome, of=first_token_s)
    found: dict[str, float] = {}
    for priority in (Priority.LOW, Priority.HIGH):
        name, impact = priority.name.lower(), last[priority]
        found |= {f"{name}_p50": impact.p50, f"{name}_p99": impact.p99, f"{name}_first_token_p99": first[priority].p99}
    return found


def _worst(outcomes: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: max(outcome[name] for outcome in outcomes) for name in outcomes[0]}


def _hour(jobs: Sequence[TrainingJob]) -> Outcome:
    empty = np.array([], dtype=np.int64)
    work = Work(
        duration_s=3600.0,
        pools=(),
        arrival_s=np.array([], dtype=float),
        pool=empty,
        prompt_tokens=empty,
        output_tokens=empty,
        jobs=tuple(jobs),
    )
    budget_w = sum(job.servers for job in jobs) * PROVISIONED_W
    return simulate(RowSpec(budget_w=budget_w, bias=0.0), work, policy=policy_named("none"), bare=True)


def _examples() -> dict[str, TrainingJob]:
    jobs = {job.name.rpartition("-")[0]: job for job in training_jobs(servers=40)}
    if set(jobs) != {one.name for one in TRAINED}:
        raise FleetwrightError("ten jobs no longer train every model")
    return jobs
