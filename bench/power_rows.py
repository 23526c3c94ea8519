"""One simulated row, capped and uncapped: the common part of all power benchmarks of rows.

The budget is that of 40 servers: the highest uncapped reading of such a row with the same seed over 0.79, POLCA's
published peak utilisation (arXiv 2308.12908).  Latency impact is against the same requests uncapped on the same
servers, as the service was: one request per server, or full batches on traces.  If the policy changes routing, the
impact against the uncapped row with the same right to batch is reported too: capping alone, without what batching
saves.  Latency runs to the last token; the time to the first token has its own columns, against the same uncapped row.
Runs of one seed share a process, so that their common part is simulated once; two processes at most.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bench.harness import Row, text
from power.controls import Priority
from power.policies import OWN_ROUTER, policy_named
from power.server_model import BLOOM_A100, ServerModel
from power.simulator import Outcome, RowSpec, simulate
from power.simulator.outcome import Requests
from power.simulator.spec import Fault
from power.slo_impact import POLCA_SLO, Impact, latency_impact
from power.workload import Sources, Work, read_sources
from power.workload.jobs import PROVISIONED_W

Floats = npt.NDArray[np.float64]
ItemT = TypeVar("ItemT")

SEEDS = tuple(range(int(os.environ.get("FLEETWRIGHT_BENCH_SEEDS", "5"))))
DAYS = float(os.environ.get("FLEETWRIGHT_BENCH_DAYS", "14"))
PROCESSES = 2
BUDGET_SERVERS = 40
PUBLISHED_PEAK = 0.79
WITHOUT_LIMIT_W = 1e9
WINDOW_S = 2.0
CODE, CONV = "AzureLLMInferenceTrace_code_2023.csv.gz", "AzureLLMInferenceTrace_conv_2023.csv.gz"


@dataclass(frozen=True, slots=True)
class Case:
    """One run.  The fields after `seed` are equal for the runs that set its budget and its reference."""

    servers: int
    policy: str
    seed: int = 0
    days: float = DAYS
    truth: ServerModel = BLOOM_A100
    traced: bool = False
    training_share: float = 0.0
    bare: bool = False  # the policy with the power brake alone, as POLCA's; else the whole guard
    delay_s: float | None = None
    faults: tuple[Fault, ...] = ()
    batched: bool = False  # batch requests under any policy

    @property
    def together(self) -> int | None:
        """POLCA's row does not batch; services with traces do, and policies that change routing may."""
        return None if self.traced or self.batched or self.policy in OWN_ROUTER else 1

    @property
    def uncapped(self) -> "Case":
        return replace(self, policy="none", bare=True, delay_s=None, faults=())

    @property
    def uncapped_batched(self) -> "Case":
        """The same with full batches: the effect of routing without any limit."""
        return replace(self.uncapped, batched=True)

    @property
    def yardstick(self) -> "Case":
        """The row that the budget was made for."""
        return replace(self.uncapped, servers=BUDGET_SERVERS, training_share=0.0)


@dataclass(frozen=True, slots=True)
class Measured:
    case: Case
    brakes: int
    peak: float  # highest reading over budget
    impacts: dict[Priority, Impact]
    against_batched: dict[Priority, Impact]
    first_tokens: dict[Priority, Impact]  # from arrival to the first token, in place of the last
    training_slowdown: float

    @property
    def slo(self) -> bool:
        return all(limit.holds(self.impacts[priority]) for priority, limit in POLCA_SLO.items())


def measured(case: Case) -> Measured:
    before = uncapped(case.uncapped)
    limit_w = budget_w(case.yardstick)
    outcome = _run(case, limit_w)
    found = impacts(before, outcome)
    done = outcome.iterations.sum() / max(1, before.iterations.sum()) if len(outcome.iterations) else 1.0
    return Measured(
        case=case,
        brakes=outcome.brakes,
        peak=outcome.peak_utilization,
        impacts=found,
        against_batched=impacts(uncapped(case.uncapped_batched), outcome) if case.together is None else found,
        first_tokens=impacts(before, outcome, of=first_token_s),
        training_slowdown=float(1 / done - 1) if done else float("inf"),
    )


def first_token_s(requests: Requests) -> Floats:
    """Return the time from arrival to the first token."""
    return requests.first_s - requests.arrival_s


def largest_rise(outcome: Outcome, over_s: float) -> float:
    """Return the largest rise of readings within a time, over the budget."""
    windows = max(1, round(over_s / WINDOW_S))
    padded = np.concatenate([np.full(windows, np.inf), outcome.readings_w])
    lowest = np.lib.stride_tricks.sliding_window_view(padded, windows + 1).min(axis=1)
    return float((outcome.readings_w - lowest).max() / outcome.budget_w)


def impacts(
    before: Outcome, outcome: Outcome, *, of: Callable[[Requests], Floats] = lambda requests: requests.latency_s
) -> dict[Priority, Impact]:
    return {
        priority: latency_impact(
            uncapped_s=of(before.requests),
            capped_s=of(outcome.requests),
            chosen=before.requests.of(priority),
        )
        for priority in Priority
    }


@lru_cache(maxsize=2)
def uncapped(case: Case) -> Outcome:
    """A run without limit; only the last are kept, they are large."""
    return _run(case, WITHOUT_LIMIT_W)


@cache
def budget_w(yardstick: Case) -> float:
    return _run(yardstick, WITHOUT_LIMIT_W).peak_w / PUBLISHED_PEAK


def by_seed(function: Callable[[int], ItemT], seeds: Sequence[int] = SEEDS) -> list[ItemT]:
    """Return the results for each seed, from two processes."""
    if PROCESSES == 1 or len(seeds) == 1:
        return [function(seed) for seed in seeds]
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(function, seeds))


def figures(runs: Sequence[Measured]) -> Row:
    low, high = ([run.impacts[priority] for run in runs] for priority in (Priority.LOW, Priority.HIGH))
    return {
        "seeds": len(runs),
        "days": runs[0].case.days,
        "brakes_by_seed": " ".join(str(run.brakes) for run in runs),
        "peak_pct": 100 * max(run.peak for run in runs),
        "low_p50_pct": 100 * max(impact.p50 for impact in low),
        "low_p99_pct": 100 * max(impact.p99 for impact in low),
        "high_p50_pct": 100 * max(impact.p50 for impact in high),
        "high_p99_pct": 100 * max(impact.p99 for impact in high),
        **{
            f"{priority.name.lower()}_first_token_p99_pct": 100 * max(run.first_tokens[priority].p99 for run in runs)
            for priority in (Priority.HIGH, Priority.LOW)
        },
        **_against_batched(runs),
        "slo_held": f"{sum(run.slo for run in runs)} of {len(runs)}",
    }


def _against_batched(runs: Sequence[Measured]) -> Row:
    if all(run.against_batched == run.impacts for run in runs):
        return {}
    return {
        f"{priority.name.lower()}_p{share}_pct_against_batched": 100
        * max(getattr(run.against_batched[priority], f"p{share}") for run in runs)
        for priority in (Priority.HIGH, Priority.LOW)
        for share in (50, 99)
    }


@cache
def sources(*, traced: bool) -> Sources | None:
    if not traced:
        return Sources()
    texts = [(name, text("power", name)) for name in (CODE, CONV)]
    found = [(name, content) for name, content in texts if content is not None]
    return read_sources(found) if len(found) == len(texts) else None


def work_of(case: Case) -> Work:
    """What the row has to do.  Servers that train are provisioned with their share of the budget."""
    source = sources(traced=case.traced)
    assert source is not None
    provisioned_w = budget_w(case.yardstick) / BUDGET_SERVERS if case.training_share else PROVISIONED_W
    return source.work(
        servers=case.servers,
        days=case.days,
        seed=case.seed,
        training_share=case.training_share,
        model=case.truth,
        provisioned_w=provisioned_w,
    )


def _run(case: Case, limit_w: float) -> Outcome:
    work = work_of(case)
    policy = policy_named(case.policy, kinds=(case.truth,), jobs=work.jobs, command_delay_s=case.delay_s)
    spec = RowSpec(budget_w=limit_w, model=case.truth, together=case.together)
    return simulate(spec, work, policy=policy, bare=case.bare, faults=case.faults, seed=case.seed)
