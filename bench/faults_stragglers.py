"""Compute stragglers: time until +3 % is named among 2,048 nodes, and false alarms per day.

Only the compute plane of the simulator (docs/explanation/faults/simulator.md): steps of 2 s with a jitter of 3 %, nodes
that wander by 0.3 % with a memory of 5 minutes and differ by 1 % permanently, two pauses per node and hour, 3 % common
to all, eight stages, windows of 2.5 s.  After an hour, and every 20 minutes from then on, one node of 128 is 3 % slower
for five minutes; each node is used once.  Some cases change one of these, or a setting of the detector.

Each finished job is a line of bench/out/faults_stragglers.jsonl with a digest of the code under test: an interrupted
run continues.  `run` continues for about `LIMIT_S`; `python -m bench.faults_stragglers` has no limit.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from faults.fabric import Floats
from faults.simulator.intervals import poisson_upper, wilson
from faults.stragglers import Roles, Stragglers, StragglerSettings

KEPT: Final = Path(__file__).parent / "out" / "faults_stragglers.jsonl"
JUDGED: Final = Path(__file__).parent.parent / "faults" / "stragglers"
SEED: Final = 10_000
LIMIT_S: Final = 120.0
WINDOW_S, STAGES, DAY_H = 2.5, 8, 24.0
HISTORY_H, EPISODES, LASTS_S, EVERY_S = 1.0, 208, 300.0, 1200.0
AT_ONCE: Final = 128  # one node of so many


@dataclass(frozen=True)
class Job:
    nodes: int = 2048
    jitter: float = 0.03  # per step
    step_s: float = 2.0
    wander: float = 0.003
    wander_s: float = 300.0
    spread: float = 0.01
    drift: float = 0.0  # per root hour
    imbalance: float = 0.0  # between replicas, memory a minute
    pauses_per_h: float = 2.0
    lost: float = 0.0  # share of agents, for 10 minutes each
    assumed_wander: float = StragglerSettings().wander
    slowdown: float = 1.03
    hours: float | None = None  # healthy ones; else episodes


UNEVEN: Final = Job(imbalance=0.10)
CASES: Final[Mapping[str, Job]] = {
    "+3 %": Job(),
    **{f"healthy, day {day + 1}": Job(hours=DAY_H) for day in range(7)},
    "+3 %, 1,024 nodes": Job(nodes=1024),
    "+3 %, 256 nodes": Job(nodes=256),
    "+5 %": Job(slowdown=1.05),
    "+10 %": Job(slowdown=1.10),
    "+25 %": Job(slowdown=1.25),
    "+3 %, replicas 10 % uneven": UNEVEN,
    "+3 %, 1 % of agents lost": Job(lost=0.01),
    "+3 %, ten pauses an hour": Job(pauses_per_h=10.0),
    "+3 %, means drift .5 % per root hour": Job(drift=0.005),
    "+3 %, told half of the wander": Job(assumed_wander=0.0015),
    "+3 %, told twice the wander": Job(assumed_wander=0.006),
    "+3 %, wanders twice as much": Job(wander=0.006),
    "+3 %, wanders half as much": Job(wander=0.0015),
    "healthy, told half of the wander": Job(hours=DAY_H, assumed_wander=0.0015),
    "healthy, wanders twice as much": Job(hours=DAY_H, wander=0.006),
    "healthy, replicas 10 % uneven": Job(hours=DAY_H, imbalance=0.10),
}


class Plane:
    def __init__(self, job: Job, seed: int) -> None:
        self._job, self.rng = job, np.random.default_rng(seed)
        of_stage = job.nodes // STAGES
        stage, self._replica = np.arange(job.nodes) // of_stage, np.arange(job.nodes) % of_stage
        self.roles = Roles(stage, self._replica)
        ends = 0.1 * np.isin(stage, (0, STAGES - 1))
        self._usual = ends + job.spread * self.rng.standard_normal(job.nodes)
        self._sway = job.wander * self.rng.standard_normal(job.nodes)
        self._data = job.imbalance * self.rng.standard_normal(of_stage)
        self.lost = self.rng.random(job.nodes) < job.lost

    def window(self) -> Floats:
        job, rng = self._job, self.rng
        jitter = job.jitter * min(1.0, job.step_s / WINDOW_S) ** 0.5
        times_s = self._usual + self._sway + jitter * rng.standard_normal(job.nodes) + 0.03 * rng.standard_normal()
        self._sway = _onward(self._sway, job.wander, job.wander_s, rng)
        if job.drift:
            self._usual = self._usual + job.drift * (WINDOW_S / 3600.0) ** 0.5 * rng.standard_normal(job.nodes)
        if job.imbalance:
            self._data = _onward(self._data, job.imbalance, 60.0, rng)
            times_s += self._data[self._replica]
        paused = rng.integers(0, job.nodes, rng.poisson(job.pauses_per_h * job.nodes * WINDOW_S / 3600.0))
        times_s[paused] += np.log1p(rng.exponential(0.15 * 10.0 / WINDOW_S, paused.size))
        if job.lost:
            back, chance = WINDOW_S / 600.0, rng.random(job.nodes)
            self.lost = np.where(self.lost, chance > back, chance < back * job.lost / (1.0 - job.lost))
            times_s[self.lost] = np.nan
        return np.asarray(times_s)


def _onward(of: Floats, deviation: float, memory_s: float, rng: np.random.Generator) -> Floats:
    keep = float(np.exp(-WINDOW_S / memory_s))
    return np.asarray(keep * of + (1.0 - keep * keep) ** 0.5 * deviation * rng.standard_normal(of.size))


class _Watched:
    def __init__(self, job: Job, seed: int) -> None:
        self.plane, self._slowdown = Plane(job, seed), float(np.log(job.slowdown))
        self._watch = Stragglers(self.plane.roles, StragglerSettings(wander=job.assumed_wander))
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


def _healthy(job: Job, seed: int) -> dict[str, Any]:
    watched, false = _Watched(job, seed), 0
    while job.hours is not None and watched.now_s < job.hours * 3600.0:
        false += len(watched.window())
    return {"false": false, "hours": watched.now_s / 3600.0, **_cost(watched)}


def _detect(job: Job, seed: int) -> dict[str, Any]:
    """One batch of new stragglers after the other; a lost agent's node is none."""
    watched, rng, false = _Watched(job, seed), np.random.default_rng([seed, 1]), 0
    order: list[int] = rng.permutation(job.nodes).tolist()
    took_s: list[float] = []
    while watched.now_s < HISTORY_H * 3600.0:
        false += len(watched.window())
    while len(took_s) < EPISODES and len(order) >= job.nodes // AT_ONCE:
        batch = [node for node in (order.pop() for _ in range(job.nodes // AT_ONCE)) if not watched.plane.lost[node]]
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


def _cost(watched: _Watched) -> dict[str, Any]:
    return {"windows": watched.windows, "decision_ms": 1e3 * watched.spent_s / watched.windows}


def code() -> str:
    """A digest of what is judged and of what it is judged on."""
    paths = [*sorted(JUDGED.glob("*.py")), Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


CODE: Final = code()  # when this process began


def go_on(limit_s: float) -> None:
    done, begun_s = {line["case"] for line in _lines()}, time.monotonic()
    for at, (case, job) in enumerate(CASES.items()):
        if case in done:
            continue
        line = {"code": CODE, "case": case, "seed": SEED + at}
        line |= _detect(job, SEED + at) if job.hours is None else _healthy(job, SEED + at)
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if time.monotonic() - begun_s > limit_s:
            return


def _lines() -> Iterator[dict[str, Any]]:
    for text in KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else ():
        line = json.loads(text)
        if line["code"] == CODE:
            yield line


def run() -> list[dict[str, Any]]:
    go_on(LIMIT_S)
    return rows()


def rows() -> list[dict[str, Any]]:
    lines = list(_lines())
    plain = [line for line in lines if line["case"].startswith("healthy, day")]
    found = [_took(line) for line in lines if "took_s" in line]
    found += [_days("healthy", plain)] if plain else []
    return found + [_days(line["case"], [line]) for line in lines if "took_s" not in line and line not in plain]


def _took(line: Mapping[str, Any]) -> dict[str, Any]:
    took_s = np.array(line["took_s"])
    within, n = int((took_s <= 240.0).sum()), int(took_s.size)
    low, high = wilson(within, n) or (0.0, 1.0)
    return {
        "what": line["case"],
        "n": n,
        "within_240_s_share": within / n,
        "within_240_s_low": low,
        "within_240_s_high": high,
        **{f"p{share}_s": float(np.quantile(took_s, share / 100.0, method="higher")) for share in (50, 95)},
        "false": line["false"],
        "hours": line["hours"],
        "decision_ms": line["decision_ms"],
    }


def _days(what: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    false, hours = sum(line["false"] for line in lines), sum(line["hours"] for line in lines)
    return {
        "what": what,
        "hours": hours,
        "false": false,
        "false_per_day": false * DAY_H / hours,
        "false_per_day_upper95": poisson_upper(false) * DAY_H / hours,
        "decision_ms": sum(line["decision_ms"] for line in lines) / len(lines),
    }


if __name__ == "__main__":
    go_on(np.inf)
    print(json.dumps(rows(), indent=1))
