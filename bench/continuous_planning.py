"""Continuous planning on days and hours of public traces: cost over a clairvoyant planner, and too few replicas.

One GPU type and one size of requests, so that every policy is one count of replicas per window of a minute; a replica
serves 1 request/s of the trace's mean sizes, at 85 % utilisation.  Traces are scaled to a mean of `REPLICAS` replicas.
The scored windows are the second day of a trace, and the last of the two hours before them are history, as a loop reads
it from Prometheus at its start; traces of an hour have half an hour of history and less than one to score.
A decision after window t changes the count of window t + 1 where it shrinks, and of t + 1 + WARM_UP where it grows;
warming replicas are paid for.  `short` counts windows in which the ready replicas were fewer than the demand needs; the
target is at most one minus the planned quantile.

    clairvoyant      the cheapest counts that are never short, with the whole trace known and the same warm-up; it may
                     change any count in any window
    Fleetwright      `planner.planning_loop`: forecast, stability, one change per window at most
    HPA on queue     Kubernetes: replicas x (queue per replica / target), tolerance 10 %, stabilisation of 5 minutes
    AIBrix           its GPU optimizer: the optimum for the last window's rate, in each window
    llm-d            its saturation rule: one replica more while the spare KV cache of the mean replica is below its
                     threshold, one less while the others would keep enough

The last two follow the published rules and defaults of 2026; the queue and the cache follow from a fluid model: a
replica's cache is used in proportion to its load, and what exceeds the ready replicas waits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from bench.clairvoyant import clairvoyant
from bench.demand_series import REPORT, Floats, demands
from bench.harness import Row
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.demand.replicas import Window
from planner.demand.windows import DemandWindow
from planner.planning_loop import LoopMemory, LoopSettings, decide_window, observe
from planner.request import PlanRequest
from planner.result import Allocation

REPLICAS = 40.0  # mean demand
UTILISATION = 0.85
WARM_UP = 5  # windows
QUANTILE = 0.95
WINDOW_S = 60.0
DAY, HISTORY, SHORT_HISTORY = 1440, 120, 30  # windows; of traces of at least two days, and of others
HPA_TARGET, HPA_TOLERANCE, HPA_STABLE = 5.0, 0.1, 5  # queued requests per replica; windows
KV_SPARE, QUEUE_SPARE = 0.2, 3.0  # llm-d: kvSpareTrigger x 2 rounded to its default 0.1 below and above 0.8, queue 3

SETTINGS = LoopSettings(window_s=WINDOW_S, warm_up_s=WARM_UP * WINDOW_S, quantile=QUANTILE)

Policy = Callable[[Floats], list[int]]  # demand in replicas per window -> count wanted after each window


@dataclass(frozen=True, slots=True, eq=False)
class Day:
    trace: str
    needed: Floats  # replicas at full utilisation, per window
    history: int  # windows before the scored ones

    @property
    def scored(self) -> slice:
        return slice(self.history, None)


def run() -> list[Row]:
    return [row for day in days(REPORT) for row in _rows(day)]


def days(part: str) -> Iterator[Day]:
    """The second day of each trace, or the whole of a short one, in windows of a minute."""
    for demand in demands(part):
        if demand.window_s not in (60.0, 600.0) or "tokens" in demand.group:
            continue
        rates = demand.rates
        if demand.window_s == 600.0:
            if demand.group == "ServeGen clients":
                continue  # their modelled form has windows of a minute
            rates = minutes(rates[: 2 * 144 + 1], seed=1)
        yield day_of(demand.group.removesuffix(", requests"), rates)


def day_of(trace: str, rates: Floats) -> Day:
    if len(rates) >= 2 * DAY:
        kept, history = rates[DAY - HISTORY : 2 * DAY], HISTORY
    else:
        kept, history = rates, SHORT_HISTORY
    return Day(trace, kept * REPLICAS / kept.mean(), history)


def minutes(rates: Floats, *, seed: int) -> Floats:
    """Minutes between means of ten, with the counting noise of Poisson arrivals at 0.7 requests/s per replica."""
    at = np.arange(0, len(rates) - 1, 0.1)
    course = np.interp(at, np.arange(len(rates)), rates)
    scale = REPLICAS / course.mean()
    counts: Floats = np.random.default_rng(seed).poisson(course * scale * WINDOW_S) / WINDOW_S / scale
    return counts


def _rows(day: Day) -> Iterator[Row]:
    best = clairvoyant(day.needed.tolist(), capacity=UTILISATION, warmup=WARM_UP)
    yield {"trace": day.trace, "policy": "clairvoyant"} | scores(day, ready=best.serving, paid=best.paid)
    policies: dict[str, Policy] = {
        "Fleetwright": fleetwright,
        "HPA on queue length": hpa,
        "AIBrix": aibrix,
        "llm-d": llm_d,
    }
    for name, policy in policies.items():
        yield {"trace": day.trace, "policy": name} | scored(day, policy(day.needed))


def scored(day: Day, wanted: Sequence[int]) -> Row:
    return scores(day, ready=ready_replicas(wanted), paid=_paid(wanted))


def scores(day: Day, *, ready: Sequence[int] | Floats, paid: Sequence[int] | Floats) -> Row:
    best = clairvoyant(day.needed.tolist(), capacity=UTILISATION, warmup=WARM_UP)
    ready, paid, cheapest = (np.asarray(each, dtype=float)[day.scored] for each in (ready, paid, best.paid))
    short = ready < replicas_for(day.needed)[day.scored]
    changes, windows = int(np.count_nonzero(np.diff(paid))), len(paid)
    return {
        "windows": windows,
        "cost_over_clairvoyant_percent": 100 * float(paid.sum() / cheapest.sum() - 1),
        "short_windows_percent": 100 * float(short.mean()),
        "changes_per_hour": 3_600 / WINDOW_S * changes / windows,
    }


def replicas_for(demand: Floats) -> Floats:
    return np.ceil(demand / UTILISATION - 1e-9)


def ready_replicas(wanted: Sequence[int]) -> Floats:
    """Replicas that serve in each window; those that are not wanted any more stop at once, the youngest first."""
    counts = np.array(wanted)
    return np.array([counts[max(0, t - WARM_UP - 1) : max(1, t)].min() for t in range(len(counts))])


def _paid(wanted: Sequence[int]) -> Floats:
    """A decision counts from the next window on."""
    counts = np.array(wanted, dtype=float)
    return np.concatenate((counts[:1], counts[:-1]))


def fleetwright(demand: Floats, *, settings: LoopSettings = SETTINGS) -> list[int]:
    memory, counts = LoopMemory(), list[int]()
    running = _first(demand)
    for t, rate in enumerate(demand):
        window = Window(WINDOW_S * t, WINDOW_S * (t + 1))
        observed = DemandWindow(window=window, arrivals_rps=float(rate), requests=float(rate) * WINDOW_S)
        memory = observe(memory, {"w": observed}, template=TEMPLATE, settings=settings)
        decision = decide_window(
            TEMPLATE,
            memory=memory,
            settings=settings,
            running=_allocation(running),
            windows={"w": observed},
            traffic={},
            gpus=builtin_gpus(),
            models=builtin_models(),
            offers=(),
        )
        memory, running = decision.memory, sum(decision.replicas.values())
        counts.append(running)
    return counts


def hpa(demand: Floats) -> list[int]:
    """`desired = ceil(replicas x value / target)`, within the tolerance, and the highest of the last five minutes."""
    count, queue = _first(demand), 0.0
    counts, recommended = [count], list[int]()
    for t in range(len(demand)):
        ready = ready_replicas(counts)[-1]
        queue = max(0.0, queue + (demand[t] - ready) * WINDOW_S)
        in_flight = min(demand[t], ready) * HPA_TARGET / UTILISATION + queue  # a full replica has the target in flight
        ratio = in_flight / (HPA_TARGET * count)
        desired = count if abs(ratio - 1) <= HPA_TOLERANCE else ceil(count * min(ratio, 4.0))
        recommended.append(max(1, desired))
        count = max(recommended[-HPA_STABLE:]) if desired < count else max(1, desired)
        counts.append(count)
    return counts[1:]


def aibrix(demand: Floats) -> list[int]:
    return [max(1, ceil(rate / UTILISATION - 1e-9)) for rate in demand]


def llm_d(demand: Floats) -> list[int]:
    count, queue = _first(demand), 0.0
    counts = [count]
    for t in range(len(demand)):
        ready = ready_replicas(counts)[-1]
        queue = max(0.0, queue + (demand[t] - ready) * WINDOW_S)
        usage = min(1.0, demand[t] / max(1, ready))
        if 0.8 - usage < 0.1 or queue / max(1, ready) > QUEUE_SPARE:
            count += 1
        elif count > 1 and 0.8 - demand[t] / (count - 1) >= 0.1:
            count -= 1
        counts.append(count)
    return counts[1:]


def _first(demand: Floats) -> int:
    return max(1, floor(float(demand[0]) / UTILISATION) + 1)


def _allocation(count: int) -> tuple[Allocation, ...]:
    entry = {"workload": "w", "option": "o", "gpu": "g", "count": count, "gpus_per_replica": 1, "busy": 0.5}
    return (Allocation.model_validate(entry | {"offer": None, "power_w": None}),)


TEMPLATE = PlanRequest.model_validate(
    {
        "workloads": [
            {
                "name": "w",
                "rate_rps": 1.0,
                "buckets": {"input_tokens": [1000], "output_tokens": [200], "share": [[1.0]]},
                "options": [{"name": "o", "gpu": "g", "price_usd_per_h": 1.0, "max_rps": [[1.0]]}],
            }
        ],
        "utilisation": UTILISATION,
    }
)
