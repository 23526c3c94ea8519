"""Compute stragglers: time until +3 % is named among 2,048 nodes, and false alarms per day.

Only the compute plane of the simulator (docs/explanation/faults/simulator.md): steps of 2 s with a jitter of 3 %, nodes
that wander by 0.3 % with a memory of 5 minutes and differ by 1 % permanently, two pauses per node and hour, 3 % common
to all, eight stages, windows of 2.5 s.  After an hour, and every 20 minutes from then on, one node of 128 is 3 % slower
for five minutes; each node is used once.  The run continues where it stopped (`bench.harness.continued`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bench.harness import ROOT, Row, continued
from faults.fabric import Floats
from faults.simulator.result import poisson_upper, wilson
from faults.stragglers import Roles, Stragglers, StragglerSettings

WINDOW_S, STAGES, DAY_H = 2.5, 8, 24.0
HISTORY_H, EPISODES, LASTS_S, EVERY_S = 1.0, 208, 300.0, 1200.0
AT_ONCE: Final = 128  # one node of so many
JITTER, STEP_S = 0.03, 2.0  # per step
SPREAD, SWAY_MEMORY_S, PAUSES_PER_H = 0.01, 300.0, 2.0


@dataclass(frozen=True)
class Job:
    nodes: int = 2048
    wander: float = 0.003
    slowdown: float = 1.03
    hours: float | None = None  # healthy ones; else episodes


HEALTHY: Final = "healthy, day"
CASES: Final[Mapping[str, tuple[int, Job]]] = {  # seed and job
    "+3 %": (10_000, Job()),
    **{f"{HEALTHY} {day + 1}": (10_001 + day, Job(hours=DAY_H)) for day in range(7)},
    "+3 %, 1,024 nodes": (10_008, Job(nodes=1024)),
    "+25 %": (10_012, Job(slowdown=1.25)),
    "+3 %, wanders twice as much": (10_019, Job(wander=0.006)),
}


def run() -> list[Row]:
    parts = {
        case: partial(_detect if job.hours is None else _healthy, job, seed) for case, (seed, job) in CASES.items()
    }
    lines = continued("faults_stragglers", parts, sources=[ROOT / "faults" / "stragglers", Path(__file__)])
    found = [_took(case, line) for case, line in lines.items() if "took_s" in line]
    days = [line for case, line in lines.items() if case.startswith(HEALTHY)]
    return [*found, _days(days)] if days else found


class Plane:
    def __init__(self, job: Job, seed: int) -> None:
        self._job, self.rng = job, np.random.default_rng(seed)
        of_stage = job.nodes // STAGES
        stage, replica = np.arange(job.nodes) // of_stage, np.arange(job.nodes) % of_stage
        self.roles = Roles(stage, replica)
        self._usual = 0.1 * np.isin(stage, (0, STAGES - 1)) + SPREAD * self.rng.standard_normal(job.nodes)
        self._sway = job.wander * self.rng.standard_normal(job.nodes)
        self.rng.standard_normal(of_stage)  # unused, as the next one: the published figures have these draws
        self.rng.random(job.nodes)

    def window(self) -> Floats:
        job, rng = self._job, self.rng
        jitter = JITTER * min(1.0, STEP_S / WINDOW_S) ** 0.5
        times_s = self._usual + self._sway + jitter * rng.standard_normal(job.nodes) + 0.03 * rng.standard_normal()
        keep = float(np.exp(-WINDOW_S / SWAY_MEMORY_S))
        self._sway = keep * self._sway + (1.0 - keep * keep) ** 0.5 * job.wander * rng.standard_normal(job.nodes)
        paused = rng.integers(0, job.nodes, rng.poisson(PAUSES_PER_H * job.nodes * WINDOW_S / 3600.0))
        times_s[paused] += np.log1p(rng.exponential(0.15 * 10.0 / WINDOW_S, paused.size))
        return np.asarray(times_s)


class _Watched:
    def __init__(self, job: Job, seed: int) -> None:
        self.plane, self._slowdown = Plane(job, seed), float(np.log(job.slowdown))
        self._watch = Stragglers(self.plane.roles, StragglerSettings())
        self._state = self._watch.start()
        self._before: frozenset[int] = frozenset()
        self.windows, self.spent_s = 0, 0.0

    @property
    def now_s(self) -> float:
        return self.windows * WINDOW_S

    def window(self, late: Floats | float = 0.0) -> frozenset[int]:
        """Who is named now and was not before.  `late`: share of the window that each node is slow."""
        gaps_s = np.exp(self.plane.window() + np.log1p(np.expm1(self._slowdown) * late))
        self.windows += 1
        begun_s = time.process_time()
        self._state, diagnoses = self._watch.step(self._state, gaps_s, self.now_s, window_s=WINDOW_S)
        self.spent_s += time.process_time() - begun_s
        named = frozenset(one.node for one in diagnoses if one.node is not None)
        fresh, self._before = named - self._before, named
        return fresh


def _healthy(job: Job, seed: int) -> Row:
    watched, false = _Watched(job, seed), 0
    while job.hours is not None and watched.now_s < job.hours * 3600.0:
        false += len(watched.window())
    return {"false": false, "hours": watched.now_s / 3600.0, **_cost(watched)}


def _detect(job: Job, seed: int) -> Row:
    """One batch of new stragglers after the other."""
    watched, rng, false = _Watched(job, seed), np.random.default_rng([seed, 1]), 0
    order: list[int] = rng.permutation(job.nodes).tolist()
    took_s: list[float] = []
    while watched.now_s < HISTORY_H * 3600.0:
        false += len(watched.window())
    while len(took_s) < EPISODES and len(order) >= job.nodes // AT_ONCE:
        batch = [order.pop() for _ in range(job.nodes // AT_ONCE)]
        found, wrong = _episode(watched, np.array(batch, dtype=np.int64), rng)
        took_s += found
        false += wrong
    return {"took_s": took_s, "false": false, "hours": watched.now_s / 3600.0, **_cost(watched)}


def _episode(watched: _Watched, victims: Floats, rng: np.random.Generator) -> tuple[list[float], int]:
    """(seconds until each was named, how many others were).  It begins anywhere in a window."""
    nodes, whole = watched.plane.roles.stage.size, np.array(victims, dtype=np.int64)
    share, begun_s = np.zeros(nodes), watched.now_s
    share[whole] = rng.random(whole.size)
    onset_s = begun_s + WINDOW_S * (1.0 - share[whole])
    named_s: dict[int, float] = {}
    false, slow = 0, set(whole.tolist())
    while watched.now_s < begun_s + EVERY_S:
        fresh = watched.window(share)
        if watched.now_s <= begun_s + LASTS_S:
            named_s |= {node: watched.now_s for node in fresh & slow if node not in named_s}
            share[whole] = 1.0
        if watched.now_s >= begun_s + LASTS_S:
            share[:] = 0.0
        false += len(fresh - slow)
    return [
        named_s.get(node, np.inf) - at_s for node, at_s in zip(whole.tolist(), onset_s.tolist(), strict=True)
    ], false


def _cost(watched: _Watched) -> Row:
    return {"windows": watched.windows, "decision_ms": 1e3 * watched.spent_s / watched.windows}


def _took(case: str, line: Row) -> Row:
    took_s = np.array(line["took_s"])
    within, n = int((took_s <= 240.0).sum()), int(took_s.size)
    low, high = wilson(within, n) or (0.0, 1.0)
    return {
        "case": case,
        "n": n,
        "within_240_s_share": within / n,
        "within_240_s_low": low,
        "within_240_s_high": high,
        **{f"p{share}_s": float(np.quantile(took_s, share / 100.0, method="higher")) for share in (50, 95)},
        "false": line["false"],
        "hours": line["hours"],
        "decision_ms": line["decision_ms"],
    }


def _days(lines: Sequence[Row]) -> Row:
    false, hours = sum(line["false"] for line in lines), sum(line["hours"] for line in lines)
    return {
        "case": "healthy",
        "hours": hours,
        "false": false,
        "false_per_day": false * DAY_H / hours,
        "false_per_day_upper95": poisson_upper(false) * DAY_H / hours,
        "decision_ms": sum(line["decision_ms"] for line in lines) / len(lines),
    }
