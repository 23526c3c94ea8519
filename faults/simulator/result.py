"""The result of `simulate`: each share with its 95 % interval, each time by class."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from faults.simulator.fault_schedule import FAULTS, FaultKind
from faults.simulator.score import CLASS, DIRECTED, Outcome
from fleet.documents import Frozen

_Z95 = 1.959963984540054
WEEK_H = 168.0
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Interval = tuple[Share, Share]


def wilson(hits: int, of: int) -> tuple[float, float] | None:
    """Return the 95 % interval of hits / of (Wilson 1927); None for `of` = 0."""
    if not of:
        return None
    share, square = hits / of, _Z95 * _Z95
    middle = share + square / (2 * of)
    half = _Z95 * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    scale = 1 + square / of
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def poisson_upper(count: int, *, confidence: float = 0.95) -> float:
    """Return the mean at which this count or less has a probability of 1 - confidence; 3.0 for a count of 0."""
    low, high = 0.0, count + 10.0 * math.sqrt(count + 1.0) + 10.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if _at_most(count, middle) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(count: int, mean: float) -> float:
    if mean <= 0.0:
        return 1.0
    return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))


class Times(Frozen):
    """Seconds from the first effect to the diagnosis."""

    p50: float
    p95: float
    max: float


class KindScore(Frozen):
    """Score of one kind of fault."""

    faults: int
    recall: Share
    recall_interval: Interval | None
    right_direction: Share | None  # of the named ones; None for a kind without a direction
    right_direction_interval: Interval | None
    late: int  # named after the limit
    hidden: int  # unobservable: the only agent that can observe it was lost
    isolated: int  # named with `isolate`


class Score(Frozen):
    """The score of a simulation.  A share of nothing is None."""

    scenario: str
    ranks: int
    hours: float
    seed: int
    faults: int  # eligible faults
    recall: Share | None
    recall_interval: Interval | None
    hidden_faults: int  # eligible faults whose only observer was lost
    recall_visible: Share | None  # of the other eligible faults
    recall_visible_interval: Interval | None
    recall_slow: Share | None  # of the faults that slow the job without stopping it
    recall_slow_interval: Interval | None
    precision: Share | None
    precision_interval: Interval | None
    diagnoses: int
    congestion_diagnoses: int  # of congested links and uplinks; in neither precision nor recall
    workload_diagnoses: int  # of the workload
    false_isolations: int
    false_isolations_per_week: float
    false_isolations_per_week_upper95: float
    carried_out: int  # healthy nodes that the quarantine policy takes out
    carried_out_per_week_upper95: float
    ttd_s: Mapping[str, Times]  # by class
    by_kind: Mapping[str, KindScore]
    compute_s_per_window: float
    compute_s_per_window_max: float
    window_s: float
    run_s: float


def score(outcome: Outcome, *, scenario: str, ranks: int, seed: int, window_s: float, run_s: float) -> Score:
    tally = outcome.tally
    faults, named = sum(tally.eligible.values()), sum(tally.named.values())
    slow = [kind for kind in FAULTS if CLASS[kind].value.endswith("slow")]
    slow_faults, slow_named = sum(tally.eligible[kind] for kind in slow), sum(tally.named[kind] for kind in slow)
    hidden, visible_named = sum(tally.hidden.values()), named - sum(tally.hidden_named.values())
    diagnoses = tally.right + tally.wrong
    weeks = outcome.hours / WEEK_H
    return Score(
        scenario=scenario,
        ranks=ranks,
        hours=outcome.hours,
        seed=seed,
        faults=faults,
        recall=_share(named, faults),
        recall_interval=wilson(named, faults),
        hidden_faults=hidden,
        recall_visible=_share(visible_named, faults - hidden),
        recall_visible_interval=wilson(visible_named, faults - hidden),
        recall_slow=_share(slow_named, slow_faults),
        recall_slow_interval=wilson(slow_named, slow_faults),
        precision=_share(tally.right, diagnoses),
        precision_interval=wilson(tally.right, diagnoses),
        diagnoses=diagnoses,
        congestion_diagnoses=tally.congestion,
        workload_diagnoses=tally.workload,
        false_isolations=tally.false_isolations,
        false_isolations_per_week=tally.false_isolations / weeks,
        false_isolations_per_week_upper95=poisson_upper(tally.false_isolations) / weeks,
        carried_out=tally.carried_out,
        carried_out_per_week_upper95=poisson_upper(tally.carried_out) / weeks,
        ttd_s=_times(tally.ttd_s),
        by_kind={kind.value: _kind(outcome, kind) for kind in FaultKind if tally.eligible[kind]},
        compute_s_per_window=sum(outcome.spent_s) / max(1, len(outcome.spent_s)),
        compute_s_per_window_max=max(outcome.spent_s, default=0.0),
        window_s=window_s,
        run_s=run_s,
    )


def _share(hits: int, of: int) -> float | None:
    return hits / of if of else None


def _kind(outcome: Outcome, kind: FaultKind) -> KindScore:
    tally = outcome.tally
    eligible, named, diagnosed = tally.eligible[kind], tally.named[kind], tally.named[kind] + tally.late[kind]
    ways, directed = tally.ways[kind], diagnosed if kind in DIRECTED else 0
    return KindScore(
        faults=eligible,
        recall=named / eligible,
        recall_interval=wilson(named, eligible),
        right_direction=_share(ways, directed),
        right_direction_interval=wilson(ways, directed),
        late=tally.late[kind],
        hidden=tally.hidden[kind],
        isolated=tally.isolated[kind],
    )


def _times(by_kind: Mapping[FaultKind, Sequence[float]]) -> dict[str, Times]:
    """Return times by class of diagnosis, late ones included."""
    by_class: dict[str, list[float]] = {}
    for kind, times in by_kind.items():
        by_class.setdefault(CLASS[kind].value, []).extend(times)
    return {
        name: Times(p50=_quantile(times, 0.5), p95=_quantile(times, 0.95), max=max(times))
        for name, times in sorted(by_class.items())
        if times
    }


def _quantile(times: Sequence[float], share: float) -> float:
    """Return the smallest time that is not below this share of the times."""
    return sorted(times)[math.ceil(share * len(times)) - 1]
