"""POLCA as published, simulated: +30 % and +35 % servers under the budget of 40, against its baselines.

Assumed: unbatched BLOOM-176B on 8 x A100-80GB; POLCA's mix on four equal pools; load of the shipped shape, peak
utilisation 0.80, floor 40 %; decode clock sensitivity 0.15; power over clock by exponents 1.3 (prompt) and 1.5 (token);
3 % spread of watts between servers; commands take 40 s, the brake 5 s, telemetry 2 s; no guard but the power brake.
The paper saw rises of at most 9 % of the budget in 2 s and 11.8 % in 40 s.  `rise_40s_high_pct` counts only rises that
start above 70 % of the budget: those at night start too low to matter.
"""

from typing import Any

import numpy as np

from bench.power_rows import WINDOW_S, Case, Measured, Rows, budget_w, by_seed, figures, measured, uncapped

SIZES = (52, 54)
POLICIES = ("none", "threshold-low", "threshold-all", "polca")
HIGH = 0.70


def run() -> Rows:
    seeds = by_seed(_of_seed)
    yardsticks = [seed[0] for seed in seeds]
    first = {
        "row": "40 servers, uncapped",
        "policy": "none",
        "seeds": len(seeds),
        **{name: max(one[name] for one in yardsticks) for name in yardsticks[0]},
    }
    cases = len(SIZES) * len(POLICIES)
    return [first, *(_row([seed[1 + at] for seed in seeds]) for at in range(cases))]


def _of_seed(seed: int) -> list[Any]:
    runs = [
        measured(Case(servers=servers, policy=policy, seed=seed, bare=True)) for servers in SIZES for policy in POLICIES
    ]
    return [_realism(seed), *runs]


def _realism(seed: int) -> dict[str, float]:
    yardstick = Case(servers=40, policy="none", seed=seed).yardstick
    readings = uncapped(yardstick).readings_w / budget_w(yardstick)
    windows = np.lib.stride_tricks.sliding_window_view(readings, int(40 / WINDOW_S) + 1)
    rises = windows.max(axis=1) - windows[:, 0]
    return {
        "peak_pct": 100 * float(readings.max()),
        "rise_2s_pct": 100 * float(np.diff(readings).max()),
        "rise_40s_pct": 100 * float(rises.max()),
        "rise_40s_high_pct": 100 * float(rises[windows[:, 0] > HIGH].max()),
        "budget_per_server_w": budget_w(yardstick) / yardstick.servers,
    }


def _row(runs: list[Measured]) -> dict[str, Any]:
    case = runs[0].case
    return {
        "row": f"{case.servers} servers (+{100 * case.servers / 40 - 100:.0f} %)",
        "policy": case.policy,
        **figures(runs),
    }
