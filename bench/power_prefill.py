"""A prefill-heavy row: Azure's code trace of 2023 on half of the servers, conversations on the rest, +30 % and more.

Assumed: the server of `power_reproduction` with up to 32 requests together; utilisation 0.38 at the peak, of full
servers; requests, gaps and bursts as recorded (CC-BY 4.0; Splitwise, ISCA'24), copies shifted by the seed; the peak day
of the shipped shape.  Inside its budget of 40 servers as everywhere: uncapped peak over 0.79.  Ours runs in the guard.
"""

from typing import Any

from bench.power_rows import Case, Measured, Rows, by_seed, figures, measured, sources
from power.workload import batching

CASES = ((52, "none"), (52, "polca"), (52, "ladder"), (56, "ladder"))


def run() -> Rows:
    """A row per size and policy; none without the traces."""
    if sources(traced=True) is None:
        return []
    seeds = by_seed(_of_seed)
    return [_row([seed[at] for seed in seeds]) for at in range(len(seeds[0]))]


def _of_seed(seed: int) -> list[Measured]:
    return [
        measured(
            Case(
                servers=servers,
                policy=policy,
                seed=seed,
                days=1.0,
                truth=batching(),
                traced=True,
                bare=policy != "ladder",
            )
        )
        for servers, policy in CASES
    ]


def _row(runs: list[Measured]) -> dict[str, Any]:
    case = runs[0].case
    return {
        "row": f"{case.servers} servers (+{100 * case.servers / 40 - 100:.0f} %)",
        "policy": case.policy,
        **figures(runs),
    }
