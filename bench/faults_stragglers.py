"""Compute stragglers among 2,048 nodes: how long until +3, +5 and +10 % are named, and false alarms per day.

Gaps as in docs/faults/stragglers.md: eight stages of 256 replicas, nodes that differ by 1 %, sequence lengths that
all share (3 %), pauses (two an hour per node, mean 15 % of a window).  Jitter of 3 % per step of 1 s, steps
independent of each other (0.95 % per window of 10 s); and, for the worst case, 3 % per window as if all steps of a
window were late together.
"""

from typing import Any

import numpy as np

from faults.fabric import Floats
from faults.stragglers import Roles, Stragglers

STAGES, NODES, WINDOW_S = 8, 2048, 10.0
HISTORY_H, HEALTHY_H = 1.0, 24.0
EPISODES, EPISODE_WINDOWS = 40, 60
JITTERS = {"3 % per step": 0.03 / 10**0.5, "3 % per window": 0.03}
REPLICA = np.arange(NODES) % (NODES // STAGES)


class _Gaps:
    """A job's times to compute."""

    def __init__(self, jitter: float, seed: int, imbalance: float = 0.0) -> None:
        self.rng, self.jitter, self.imbalance = np.random.default_rng(seed), jitter, imbalance
        self.stage = np.arange(NODES) // (NODES // STAGES)
        self.usual = 0.1 * np.isin(self.stage, (0, STAGES - 1)) + 0.01 * self.rng.standard_normal(NODES)
        self.data = imbalance * self.rng.standard_normal(NODES // STAGES)

    def window(self) -> Floats:
        """Logs."""
        keep = np.exp(-WINDOW_S / 60.0)
        fresh = self.imbalance * (1.0 - keep**2) ** 0.5
        self.data = keep * self.data + fresh * self.rng.standard_normal(self.data.size)
        said = self.usual + self.data[REPLICA] + 0.03 * self.rng.standard_normal()
        said = said + self.jitter * self.rng.standard_normal(NODES)
        paused = self.rng.integers(0, NODES, self.rng.poisson(2.0 * NODES * WINDOW_S / 3600.0))
        said[paused] += np.log1p(self.rng.exponential(0.15, paused.size))
        return np.asarray(said)


def run() -> list[dict[str, Any]]:
    """Detection by size and jitter, then healthy days."""
    found = [_detect(share, what, jitter) for what, jitter in JITTERS.items() for share in (0.03, 0.05, 0.10)]
    uneven = _detect(0.10, "3 % per step, replicas 10 % uneven", JITTERS["3 % per step"], imbalance=0.10)
    return [*found, uneven, *(_healthy(what, jitter) for what, jitter in JITTERS.items())]


def _detect(share: float, what: str, jitter: float, *, imbalance: float = 0.0) -> dict[str, Any]:
    """One new straggler after the other, each for ten minutes."""
    gaps = _Gaps(jitter, seed=11, imbalance=imbalance)
    watch = Stragglers(Roles(gaps.stage, REPLICA))
    state, at, took_s, false = watch.start(), 0, [], set()
    for _ in range(int(HISTORY_H * 3600 / WINDOW_S)):
        at += 1
        state, _ = watch.step(state, np.exp(gaps.window()), at * WINDOW_S, window_s=WINDOW_S)
    for victim in gaps.rng.choice(NODES, EPISODES, replace=False):
        began_s, named_s = at * WINDOW_S, None
        for _ in range(EPISODE_WINDOWS):
            said = gaps.window()
            said[victim] += np.log1p(share)
            at += 1
            state, verdicts = watch.step(state, np.exp(said), at * WINDOW_S, window_s=WINDOW_S)
            names = {one.node: one.detected_s for one in verdicts if one.detected_s > began_s}
            named_s = names.pop(int(victim), named_s) if named_s is None else named_s
            false |= {node for node in names if node != victim}
        took_s.append(np.inf if named_s is None else named_s - began_s)
    finite = np.array(took_s)
    return {
        "what": f"+{100 * share:.0f} %, jitter {what}",
        "n": EPISODES,
        "named_share": float(np.isfinite(finite).mean()),
        "within_240_s_share": float((finite <= 240.0).mean()),
        "p50_s": float(np.quantile(finite, 0.5, method="higher")),
        "p95_s": float(np.quantile(finite, 0.95, method="higher")),
        "false": len(false),
        "hours": at * WINDOW_S / 3600.0,
    }


def _healthy(what: str, jitter: float) -> dict[str, Any]:
    gaps = _Gaps(jitter, seed=12)
    watch = Stragglers(Roles(gaps.stage, REPLICA))
    state, alarms, before = watch.start(), 0, frozenset[int | None]()
    for at in range(int(HEALTHY_H * 3600 / WINDOW_S)):
        state, verdicts = watch.step(state, np.exp(gaps.window()), (at + 1) * WINDOW_S, window_s=WINDOW_S)
        names = frozenset(one.node for one in verdicts)
        alarms += len(names - before)
        before = names
    return {
        "what": f"healthy, jitter {what}",
        "hours": HEALTHY_H,
        "false": alarms,
        "false_per_day": alarms * 24 / HEALTHY_H,
    }
