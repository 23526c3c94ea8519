"""A quarter of the row trains: +20 % servers under the budget of 40 that serve.

Assumptions as in `power_reproduction` for the servers that serve.  Those that train, in jobs of four, draw 97 % of the
provisioned power while they compute and fall to the troughs of RoBERTa, GPT-NeoX and Flan-T5 (POLCA) every few seconds;
power above the trough follows the clock by exponent 1.3, time its inverse.
"""

from typing import Any

from bench.power_rows import Case, Measured, Rows, by_seed, figures, measured

SERVERS, SHARE = 48, 0.25
POLICIES = ("none", "polca", "ladder")


def run() -> Rows:
    seeds = by_seed(_of_seed)
    return [_row([seed[at] for seed in seeds]) for at in range(len(POLICIES))]


def _of_seed(seed: int) -> list[Measured]:
    return [
        measured(Case(servers=SERVERS, policy=policy, seed=seed, training_share=SHARE, bare=policy != "ladder"))
        for policy in POLICIES
    ]


def _row(runs: list[Measured]) -> dict[str, Any]:
    return {
        "row": f"{SERVERS} servers (+{100 * SERVERS / 40 - 100:.0f} %), {SHARE:.0%} training",
        "policy": runs[0].case.policy,
        **figures(runs),
        "training_longer_pct": 100 * max(run.training_slowdown for run in runs),
    }
