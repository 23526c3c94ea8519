"""A prefill-heavy row: Azure's code trace of 2023 on half of the servers, conversations on the rest, +30 % and more.

Assumed: the server of `power_reproduction`; utilisation 0.38 at the peak, of full servers; requests, gaps and bursts as
recorded (CC-BY 4.0; Splitwise, ISCA'24), copies shifted by the seed; the peak day of the shipped shape.  The budget is
that of 40 servers: uncapped peak over 0.79.  The ladder runs in the guard.

Batch size.  The published trial assumes 32 requests together, which the server's memory would not hold.  BLOOM keeps
4.0 MB per token of context (keys and values of 70 layers of 14,336 in 16 bits, `power.server_model`); 640 GB less a
tenth less 352 GB of weights leave 224 GB, so 55,804 tokens.  A request of the code trace has 2,076 tokens in the mean
and up to 7,841: 32 of them need 267 GB.  Rows with `HELD` together are the alternative: about one draw in a thousand
does not fit (`does_not_fit_pct`), for a paged cache.  A slot for the longest request, 14,089 tokens, would leave three.
"""

from typing import Any

import numpy as np

from bench.power_rows import Case, Measured, Rows, by_seed, figures, measured, sources
from power.server_model import BLOOM_A100
from power.workload import batching
from power.workload.trace_replay import TOGETHER

HELD = 14
CASES = (
    (52, "none", TOGETHER),
    (52, "polca", TOGETHER),
    (52, "ladder", TOGETHER),
    (56, "ladder", TOGETHER),
    (52, "polca", HELD),
    (52, "ladder", HELD),
)
TOKEN_BYTES = 2 * 70 * 14_336 * 2  # a key and a value per layer, 16 bits
FREE_TOKENS = (0.9 * BLOOM_A100.gpus * 80e9 - 352e9) / TOKEN_BYTES
DRAWS = 20_000


def run() -> Rows:
    if sources(traced=True) is None:
        return []
    seeds = by_seed(_of_seed)
    return [_row([seed[at] for seed in seeds]) for at in range(len(seeds[0]))]


def does_not_fit(together: int) -> float:
    """Share of draws whose contexts, all at full length, exceed what is free; of the trace where more do."""
    found = sources(traced=True)
    assert found is not None
    random = np.random.default_rng(0)
    shares = []
    for one in found.traces:
        tokens, answers = one.trace.input_tokens + one.trace.output_tokens, one.trace.output_tokens
        drawn = random.choice(tokens, (DRAWS, together), p=answers / answers.sum())  # longer answers stay longer
        shares.append(float(np.mean(drawn.sum(axis=1) > FREE_TOKENS)))
    return max(shares)


def _of_seed(seed: int) -> list[Measured]:
    return [
        measured(
            Case(
                servers=servers,
                policy=policy,
                seed=seed,
                days=1.0,
                truth=batching(together=together),
                traced=True,
                bare=policy != "ladder",
            )
        )
        for servers, policy, together in CASES
    ]


def _row(runs: list[Measured]) -> dict[str, Any]:
    case = runs[0].case
    together = case.truth.most_together
    return {
        "row": f"{case.servers} servers (+{100 * case.servers / 40 - 100:.0f} %), {together} together",
        "policy": case.policy,
        "does_not_fit_pct": 100 * does_not_fit(together),
        **figures(runs),
    }
