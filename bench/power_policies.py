"""Policies on rows with more servers than the budget was made for: POLCA as published, and the ladder in the guard.

`reproduction`: POLCA at +30 % and +35 % beside its baselines.  Assumed: unbatched BLOOM-176B on 8 x A100-80GB; POLCA's
mix on four equal pools; load of the shipped shape, peak utilisation 0.80, floor 40 %; decode clock sensitivity 0.15;
power over clock by exponents 1.3 (prompt) and 1.5 (token); 3 % spread of watts between servers; commands take 40 s, the
brake 5 s, telemetry 2 s; no guard but the power brake.  The paper saw rises of at most 9 % of the budget in 2 s and
11.8 % in 40 s.  `rise_40s_high_pct` counts only rises that start above 70 % of the budget: those at night start too low
to matter.

`more_servers`: the same servers, and the router is owned: commands take effect within a second, the router counts
requests per server, holds prompts by power and may batch requests or let servers sleep.  `s` is the decode clock
sensitivity of the servers and of the policy's curves.

`training_share`: a quarter of the servers train in jobs of four.  They draw 97 % of the provisioned power while they
compute and fall to the troughs of RoBERTa, GPT-NeoX and Flan-T5 (POLCA) every few seconds; power above the trough
follows the clock by exponent 1.3, time its inverse.

`prefill`: Azure's code trace of 2023 on half of the servers, conversations on the rest (CC-BY 4.0; Splitwise, ISCA'24),
utilisation 0.38 at the peak, of full servers; copies shifted by the seed; the peak day of the shipped shape.  The
published trial assumes 32 requests together, which the server's memory would not hold.  BLOOM keeps 4.0 MB per token of
context (keys and values of 70 layers of 14,336 in 16 bits); 640 GB less a tenth less 352 GB of weights leave room for
55,804 tokens.  A request of the code trace has 2,076 tokens in the mean: 32 of them need 267 GB.  Rows with `HELD`
together are the alternative: about one draw in a thousand does not fit (`does_not_fit_pct`), for a paged cache.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bench.harness import Row
from bench.power_rows import WINDOW_S, Case, Measured, budget_w, by_seed, figures, measured, sources, uncapped
from power.server_model import BLOOM_A100
from power.workload import batching
from power.workload.trace_replay import TOGETHER

POLICIES = ("none", "threshold-low", "threshold-all", "polca")
HIGH = 0.70
SENSITIVITIES = (0.05, 0.15, 0.25)
TRAINING_SHARE = 0.25
HELD = 14
PREFILL_CASES = (
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


def reproduction() -> list[Row]:
    rises = by_seed(_rises)
    first: Row = {"row": "40 servers, uncapped", "policy": "none", "seeds": len(rises)}
    first |= {name: max(one[name] for one in rises) for name in rises[0]}
    cases = [Case(servers=servers, policy=policy, bare=True) for servers in (52, 54) for policy in POLICIES]
    return [first, *map(_row, _by_case(cases))]


def more_servers() -> list[Row]:
    truths = [BLOOM_A100.model_copy(update={"token_sensitivity": each}) for each in SENSITIVITIES]
    cases = [Case(servers=servers, policy="ladder", truth=truth) for servers in (58, 64) for truth in truths]
    return [{"s": runs[0].case.truth.token_sensitivity, **_row(runs)} for runs in _by_case(cases)]


def training_share() -> list[Row]:
    cases = [
        Case(servers=48, policy=policy, training_share=TRAINING_SHARE, bare=policy != "ladder")
        for policy in ("none", "polca", "ladder")
    ]
    return [
        {**_row(runs), "training_longer_pct": 100 * max(run.training_slowdown for run in runs)}
        for runs in _by_case(cases)
    ]


def prefill() -> list[Row]:
    if sources(traced=True) is None:
        return []
    cases = [
        Case(
            servers=servers,
            policy=policy,
            days=1.0,
            truth=batching(together=together),
            traced=True,
            bare=policy != "ladder",
        )
        for servers, policy, together in PREFILL_CASES
    ]
    return [
        {"together": together, "does_not_fit_pct": 100 * overflow_share(together), **_row(runs)}
        for runs in _by_case(cases)
        if (together := runs[0].case.truth.most_together)
    ]


def overflow_share(together: int) -> float:
    """Share of draws whose contexts, all at full length, exceed what is free; of the trace where more do."""
    found = sources(traced=True)
    assert found is not None
    random = np.random.default_rng(0)
    shares = []
    for one in found.traces:
        tokens, output_tokens = one.trace.input_tokens + one.trace.output_tokens, one.trace.output_tokens
        weights = output_tokens / output_tokens.sum()  # requests with longer outputs stay longer
        drawn = random.choice(tokens, (DRAWS, together), p=weights)
        shares.append(float(np.mean(drawn.sum(axis=1) > FREE_TOKENS)))
    return max(shares)


def _by_case(cases: Sequence[Case]) -> list[list[Measured]]:
    seeds = by_seed(partial(_of_seed, tuple(cases)))
    return [[seed[at] for seed in seeds] for at in range(len(cases))]


def _of_seed(cases: Sequence[Case], seed: int) -> list[Measured]:
    return [measured(replace(case, seed=seed)) for case in cases]


def _rises(seed: int) -> dict[str, float]:
    yardstick = Case(servers=40, policy="none", seed=seed).yardstick
    readings = uncapped(yardstick).readings_w / budget_w(yardstick)
    windows = np.lib.stride_tricks.sliding_window_view(readings, int(40 / WINDOW_S) + 1)
    rises = windows.max(axis=1) - windows[:, 0]
    return {
        "peak_pct": 100 * float(readings.max()),
        "rise_2s_pct": 100 * float(np.diff(readings).max()),
        "rise_40s_pct": 100 * float(rises.max()),
        "rise_40s_high_pct": 100 * float(rises[windows[:, 0] > HIGH].max()),
    }


def _row(runs: Sequence[Measured]) -> Row:
    case = runs[0].case
    extra_percent = 100 * case.servers / 40 - 100
    return {"row": f"{case.servers} servers (+{extra_percent:.0f} %)", "policy": case.policy, **figures(runs)}
