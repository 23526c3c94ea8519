"""The guard under faults, each at the worst minute of its seed, and the brake where power demands one.

58 servers on the budget of 40, the day around each seed's peak; in the worst minute the uncapped row draws the most.
After the planner's budget expires the row's rating holds, which equals that budget, at degraded clocks.

The rows marked `harsh` make a brake right: clocks that cannot be lowered in time while telemetry is lost, or a policy
that holds no prompts (POLCA's) over servers that ignore commands.

For every brake, the worst of all
    late_s      over budget: from the arrival of the first reading above it to the command
    unseen_s    telemetry lost: from the end of the last reading to the command
    spare_s     telemetry lost: margin of the breaker's curve when the brake had worked, had every server jumped to its
                highest draw at full clocks when the last reading ended
    bites_s     from the command to the end of the first window in which no server can draw more than under the brake:
                the brake takes 5 s and windows are 2 s long, so 8 s is the minimum

`breaker_pct`: heat of the breaker (the guard's thermal model on true means of 2 s, its rating the budget; it opens at
100).  Readings are the row's true ones, also where the meter is biased.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan, nan
from typing import NamedTuple

import numpy as np

from bench.breaker import heat_after
from bench.harness import Row
from bench.power_rows import DAYS, WINDOW_S, Case, Floats, budget_w, by_seed, impacts, uncapped, work_of
from power.guard import Cause, Event, EventKind, GuardMode, TripCurve
from power.policies import policy_named
from power.server_model import BLOOM_A100
from power.simulator import (
    BiasedTelemetry,
    DriverReloaded,
    IgnoredActuation,
    MissingTelemetry,
    Outcome,
    PlannerKilled,
    RowSpec,
    StaleTelemetry,
    simulate,
)
from power.simulator.spec import Fault
from power.slo_impact import POLCA_SLO

SERVERS = 58
DAYS_EACH = min(DAYS, 1.0)
VALID_S = 180.0  # of a budget in the simulator
TELEMETRY_DELAY_S = 2.0
BRAKE_S = 5.0
BLIND_AT_AGE_S = 8.0  # of the last reading, at the first step that finds it older than its delay and two periods
OUT_OF_BAND_S = 40.0
MAX_MEASURED = 200  # brakes of one run whose delays are measured
# The most under the brake; 1 %: two and a half deviations of the mean of so many servers' bias.
BRAKED_W = (
    1.01
    * SERVERS
    * max(
        BLOOM_A100.prompt_w(BLOOM_A100.brake_clock),
        BLOOM_A100.token_w(BLOOM_A100.brake_clock, BLOOM_A100.most_together),
    )
)
Faults = tuple[Fault, ...]


class Brake(NamedTuple):
    bites_s: float
    late_s: float = nan
    unseen_s: float = nan
    spare_s: float = nan


@dataclass(frozen=True, slots=True)
class Run:
    name: str
    brakes: int
    causes: tuple[str, ...]
    peak: float
    over_s: float
    hottest: float
    braked: tuple[Brake, ...]
    slo: bool
    unfinished: int


def run() -> list[Row]:
    seeds = by_seed(_of_seed)
    return [_row([seed[at] for seed in seeds]) for at in range(len(seeds[0]))]


def _of_seed(seed: int) -> list[Run]:
    plain = Case(servers=SERVERS, policy="ladder", seed=seed, days=DAYS_EACH)
    at_s = _worst_minute_s(plain)
    runs = [_run(name, replace(plain, faults=faults)) for name, faults in _faults(at_s)]
    harsh = [
        ("harsh: 40 s path, telemetry 60 s stale", replace(plain, delay_s=OUT_OF_BAND_S, faults=(_stale(at_s, 60.0),))),
        (
            "harsh: no command for clocks obeyed, telemetry 60 s stale",
            replace(plain, faults=(IgnoredActuation(share=1.0), _stale(at_s, 60.0))),
        ),
        (
            "harsh: polca, no command for clocks obeyed",
            replace(plain, policy="polca", faults=(IgnoredActuation(share=1.0),)),
        ),
    ]
    return [*runs, *(_run(name, case) for name, case in harsh)]


def _faults(at_s: float) -> Iterator[tuple[str, Faults]]:
    ends_s = max(0.0, at_s - VALID_S)
    single_faults: dict[str, Faults] = {
        "planner killed at the worst minute": (PlannerKilled(from_s=at_s),),
        "telemetry 10 s stale": (_stale(at_s, 10.0),),
        "5 % of commands ignored": (IgnoredActuation(share=0.05),),
    }
    yield "none", ()
    yield from single_faults.items()
    yield "these three at once", tuple(fault for faults in single_faults.values() for fault in faults)
    yield "planner killed so that its budget ends there", (PlannerKilled(from_s=ends_s),)
    yield "every driver reloaded", (DriverReloaded(at_s=at_s),)
    yield "10 % of readings missing", (MissingTelemetry(share=0.10),)
    yield "meter reads 2 % too much", (BiasedTelemetry(factor=1.02),)
    yield "meter reads 2 % too little", (BiasedTelemetry(factor=0.98),)


def _stale(at_s: float, span_s: float) -> StaleTelemetry:
    return StaleTelemetry(from_s=at_s, to_s=at_s + span_s)


def _run(name: str, case: Case) -> Run:
    limit_w, before = budget_w(case.yardstick), uncapped(case.uncapped)
    policy = policy_named(case.policy, command_delay_s=case.delay_s)
    spec = RowSpec(
        budget_w=limit_w, budget_valid_s=VALID_S, telemetry_delay_s=TELEMETRY_DELAY_S, together=case.together
    )
    outcome = simulate(spec, work_of(case), policy=policy, faults=case.faults, seed=case.seed)
    found = impacts(before, outcome)
    braked = [event for event in _modes(outcome) if event.mode is GuardMode.BRAKED]
    return Run(
        name=name,
        brakes=outcome.brakes,
        causes=tuple(sorted({str(event.cause) for event in braked})),
        peak=outcome.peak_utilization,
        over_s=outcome.seconds_over_budget,
        hottest=_hottest(outcome.readings_w / limit_w),
        braked=tuple(_brake_of(outcome, event) for event in braked[:MAX_MEASURED]),
        slo=all(limit.holds(found[priority]) for priority, limit in POLCA_SLO.items()),
        unfinished=sum(impact.unfinished for impact in found.values()),
    )


def _worst_minute_s(case: Case) -> float:
    """When the uncapped row draws the most over a minute."""
    readings = uncapped(case.uncapped).readings_w
    windows = int(60 / WINDOW_S)
    return WINDOW_S * float(np.argmax(np.convolve(readings, np.ones(windows), "valid")))


def _hottest(ratios: Floats) -> float:
    """The highest heat of the breaker over the heat at which it opens."""
    curve = TripCurve()
    heat, most = float(ratios[0]) ** 2, 0.0
    for ratio in ratios.tolist():
        heat = heat_after(curve, heat, ratio, WINDOW_S)
        most = max(most, heat)
    return most / curve.holds**2


def _modes(outcome: Outcome) -> list[Event]:
    return [event for event in outcome.events if isinstance(event, Event) and event.kind is EventKind.MODE]


def _brake_of(outcome: Outcome, event: Event) -> Brake:
    readings_w, order_s = outcome.readings_w, event.at_s
    braked = np.flatnonzero(readings_w[int(order_s // WINDOW_S) :] <= BRAKED_W)
    bites_s = WINDOW_S * float(braked[0] + 1) if len(braked) else inf
    if event.cause is Cause.OVER_BUDGET:
        return Brake(late_s=order_s - _came_s(outcome, order_s), bites_s=bites_s)
    blind_s = max(
        (each.at_s for each in _modes(outcome) if each.mode is GuardMode.TELEMETRY_LOST and each.at_s <= order_s),
        default=nan,
    )
    unseen_s = order_s - (blind_s - BLIND_AT_AGE_S)
    curve_s = TripCurve().seconds_to_trip(SERVERS * BLOOM_A100.prompt_w() / outcome.budget_w)
    return Brake(bites_s=bites_s, unseen_s=unseen_s, spare_s=curve_s - unseen_s - BRAKE_S)


def _came_s(outcome: Outcome, order_s: float) -> float:
    """When the first reading above the budget came, of those in a row that led to the command."""
    known = outcome.readings_w[: int((order_s - TELEMETRY_DELAY_S) // WINDOW_S)]
    at = len(known)
    while at and known[at - 1] > outcome.budget_w and not _was_braked(outcome, WINDOW_S * at):
        at -= 1
    return WINDOW_S * (at + 1) + TELEMETRY_DELAY_S


def _was_braked(outcome: Outcome, at_s: float) -> bool:
    """Return whether a reading that ended then covers a row that was braked, or just released."""
    return any(start <= at_s <= end for start, end in outcome.braked_s)


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not isnan(value)] or [nan]


def _row(runs: Sequence[Run]) -> Row:
    brakes = [brake for each in runs for brake in each.braked]
    return {
        "fault": runs[0].name,
        "servers": SERVERS,
        "seeds": len(runs),
        "days": DAYS_EACH,
        "brakes_by_seed": " ".join(str(each.brakes) for each in runs),
        "causes": ", ".join(sorted({cause for each in runs for cause in each.causes})) or "-",
        "peak_pct": 100 * max(each.peak for each in runs),
        "over_budget_s": max(each.over_s for each in runs),
        "breaker_pct": 100 * max(each.hottest for each in runs),
        "late_s": max(_known(brake.late_s for brake in brakes)),
        "unseen_s": max(_known(brake.unseen_s for brake in brakes)),
        "spare_s": min(_known(brake.spare_s for brake in brakes)),
        "bites_s": max(_known(brake.bites_s for brake in brakes)),
        "slo_held": f"{sum(each.slo for each in runs)} of {len(runs)}",
        "unfinished": max(each.unfinished for each in runs),
    }
