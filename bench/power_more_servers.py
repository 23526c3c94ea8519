"""The ladder at +45 % and +60 % servers under the budget of 40, inside the guard, over decode clock sensitivities.

Assumptions as in `power_reproduction`, except that the router is owned: commands take effect within a second, the
router counts requests per server, holds prompts by power and may batch requests or let servers sleep.  `s` is the
decode clock sensitivity of the servers and of the policy's curves.
"""

from typing import Any

from bench.power_rows import Case, Measured, Rows, by_seed, figures, measured
from power.server_model import BLOOM_A100

SIZES = (58, 64)
SENSITIVITIES = (0.05, 0.15, 0.25)


def run() -> Rows:
    seeds = by_seed(_of_seed)
    return [_row([seed[at] for seed in seeds]) for at in range(len(seeds[0]))]


def _of_seed(seed: int) -> list[Measured]:
    return [
        measured(Case(servers=servers, policy="ladder", seed=seed, truth=sensitive(sensitivity)))
        for servers in SIZES
        for sensitivity in SENSITIVITIES
    ]


def sensitive(sensitivity: float) -> Any:
    return BLOOM_A100.model_copy(update={"token_sensitivity": sensitivity})


def _row(runs: list[Measured]) -> dict[str, Any]:
    case = runs[0].case
    return {
        "row": f"{case.servers} servers (+{100 * case.servers / 40 - 100:.0f} %)",
        "s": case.truth.token_sensitivity,
        **figures(runs),
    }
