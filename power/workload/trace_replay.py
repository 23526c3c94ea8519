"""Requests of recorded traces, with their own sizes, gaps and bursts: copies of a trace, shifted and merged.

A pool gets K copies of its trace, each played in a loop from its own start that the seed draws.  With

    content = prompt time + output tokens * time of a token among `most_together` / `most_together`     [server-seconds]

of a request at full clock, `x = utilization * servers / (mean content * the trace's rate)` copies keep the pool's
full servers busy for `utilization` of their time.  K is x rounded, and a copy is played at the speed

    level(t) * x / K                                                                            [of the recorded one]

so at the peak of the day nearly as it was recorded.  No request is dropped and no gap is redrawn: bursts stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from fleet.traces import Trace
from power.arrays import Floats, Ints
from power.controls import Priority
from power.server_model import BLOOM_A100, ServerModel
from power.workload.generated import MAX_REQUESTS, drawn_curve
from power.workload.load_profile import Curve, Shape
from power.workload.workload import Pool, TrainingJob, Work

UTILIZATION = 0.38  # at the peak of the day
TOGETHER = 32  # assumed (docs/explanation/power/simulator.md, "Recorded requests"); a BLOOM-176B server fits about 14
PRIORITIES = (Priority.LOW, Priority.HIGH)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A trace and the name of its two pools."""

    name: str
    trace: Trace


def batching(model: ServerModel = BLOOM_A100, *, together: int = TOGETHER) -> ServerModel:
    """Return the same server with memory for `together` requests; not checked against its true size."""
    return model.model_copy(update={"most_together": together, "name": f"{model.name}, batch {together}"})


def traced_work(
    traces: Sequence[Recorded],
    *,
    servers: int,
    days: float = 1.0,
    seed: int = 0,
    model: ServerModel | None = None,
    utilization: float = UTILIZATION,
    shape: Shape | Curve | None = None,
    jobs: tuple[TrainingJob, ...] = (),
) -> Work:
    """Return work for the serving servers: an equal number for each trace, half of them of each priority."""
    model = model or batching()
    if not 0 < utilization < 2:
        raise RuleError([(("utilization",), f"must be above 0 and below 2, got {utilization:g}")])
    pools = _pools(traces, servers)
    curve = drawn_curve(shape, days=days, seed=seed)
    sources = [one.trace for one in traces for _ in PRIORITIES]
    copies = [_copies(trace, pool, model, utilization) for trace, pool in zip(sources, pools, strict=True)]
    expected = (
        curve.mean
        * curve.duration_s
        * sum(exact * len(trace) / trace.duration_s for trace, exact in zip(sources, copies, strict=True))
    )
    if expected > MAX_REQUESTS:
        message = f"would make about {expected:,.0f} requests, expected at most {MAX_REQUESTS:,}"
        raise RuleError([(("days",), message)])
    rng = np.random.default_rng([seed, 1])
    played = [_played(trace, exact, curve, rng) for trace, exact in zip(sources, copies, strict=True)]
    return _together(played, sources, pools, curve.duration_s, jobs)


def content_s(trace: Trace, model: ServerModel) -> Floats:
    """Return the server-seconds of each request on a server that is full."""
    prompt_tokens = np.maximum(trace.input_tokens, 1).astype(np.float64)
    each_s = model.token_time_s(model.most_together) / model.most_together
    return np.asarray(model.prompt_time_s(prompt_tokens) + each_s * trace.output_tokens)


def _pools(traces: Sequence[Recorded], servers: int) -> tuple[Pool, ...]:
    wanted = len(traces) * len(PRIORITIES)
    if not traces:
        raise RuleError([(("traces",), "is empty, expected at least one")])
    if servers < wanted:
        message = f"must be at least {wanted}, one for each trace and priority, got {servers}"
        raise RuleError([(("servers",), message)])
    for one in traces:
        if one.trace.duration_s <= 0:
            raise RuleError([(("traces", one.name), "all requests arrive at once, so they have no rate")])
    return tuple(
        Pool(
            name=f"{one.name}-{priority.name.lower()}",
            priority=priority,
            servers=servers * (2 * at + priority + 1) // wanted - servers * (2 * at + priority) // wanted,
        )
        for at, one in enumerate(traces)
        for priority in PRIORITIES
    )


def _copies(trace: Trace, pool: Pool, model: ServerModel, utilization: float) -> float:
    """Return how many copies of the trace give the load of the peak."""
    rate_rps = len(trace) / trace.duration_s
    return utilization * pool.servers / (float(content_s(trace, model).mean()) * rate_rps)


def _played(trace: Trace, exact: float, curve: Curve, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Return the arrivals of one pool, and the index of each request in the trace."""
    copies = max(1, round(exact))
    steps = np.concatenate([[0.0], np.cumsum((curve.levels[1:] + curve.levels[:-1]) / 2 * curve.step_s)])
    clock_s = steps * exact / copies  # of the trace, at each step of the curve
    times: list[Floats] = []
    which: list[Ints] = []
    for shift_s in rng.random(copies) * trace.duration_s:
        rounds = int(np.ceil((clock_s[-1] + shift_s) / trace.duration_s))
        played_s = (np.arange(rounds)[:, None] * trace.duration_s + trace.arrival_s - shift_s).ravel()
        inside = (played_s >= 0) & (played_s < clock_s[-1])
        times.append(np.interp(played_s[inside], clock_s, curve.step_s * np.arange(len(clock_s))))
        which.append(np.tile(np.arange(len(trace)), rounds)[inside])
    return np.concatenate(times), np.concatenate(which)


def _together(
    played: Sequence[tuple[Floats, Ints]],
    sources: Sequence[Trace],
    pools: tuple[Pool, ...],
    duration_s: float,
    jobs: tuple[TrainingJob, ...],
) -> Work:
    arrival_s = np.minimum(np.concatenate([times for times, _ in played]), np.nextafter(duration_s, 0))
    order = np.argsort(arrival_s, kind="stable")
    with_sources = [(trace, which) for trace, (_, which) in zip(sources, played, strict=True)]
    return Work(
        duration_s=duration_s,
        pools=pools,
        arrival_s=arrival_s[order],
        pool=np.repeat(np.arange(len(pools)), [len(times) for times, _ in played])[order],
        prompt_tokens=np.concatenate([np.maximum(trace.input_tokens[which], 1) for trace, which in with_sources])[
            order
        ],
        output_tokens=np.concatenate([trace.output_tokens[which] for trace, which in with_sources])[order],
        jobs=jobs,
    )
