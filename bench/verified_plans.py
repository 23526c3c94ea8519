"""Plans for the Azure conversation and code traces, each replayed: p99 limits held, and GPUs to spare.

The traces are in FLEETWRIGHT_POWER_DATA or beside the project; without them, traffic is drawn from the fitted presets.
FLEETWRIGHT_BENCH_FULL=1 replays a day per plan instead of the hour that the traces last.
"""

import time
from datetime import UTC, datetime
from itertools import product
from typing import Any

from bench.harness import FULL, Row, text
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.offers import builtin_prices
from planner import Plan, PlanRequest, plan
from planner.policy import ExplainLevel

TRACES = {
    "azure-conversation": ("AzureLLMInferenceTrace_conv_2023.csv.gz", 5.53),
    "azure-code": ("AzureLLMInferenceTrace_code_2023.csv.gz", 2.57),
}
# A conversation is read as it comes.  A completion of code is used when it is whole; half of those in the trace have
# fewer than 14 tokens, for which a time per token is noise.
OBJECTIVES = {
    ("azure-conversation", "Llama-3.1-8B"): {"ttft_ms": {"p99": 2000}, "tpot_ms": {"p99": 60}},
    ("azure-conversation", "Llama-3.1-70B"): {"ttft_ms": {"p99": 6000}, "tpot_ms": {"p99": 100}},
    ("azure-code", "Llama-3.1-8B"): {"ttft_ms": {"p99": 2000}, "e2e_ms": {"p99": 10_000}},
    ("azure-code", "Llama-3.1-70B"): {"ttft_ms": {"p99": 6000}, "e2e_ms": {"p99": 30_000}},
}
SPEEDS = (1, 2, 5, 10, 20)  # times the trace's own rate
HOURS = 24.0 if FULL else 1.0


def run() -> list[Row]:
    rows = [_row(*case, speed) for case, speed in product(OBJECTIVES, SPEEDS)]
    return [*rows, _all(rows)]


def _row(trace: str, model: str, speed: int) -> Row:
    started_s = time.perf_counter()
    result = _planned(trace, model, speed)
    (proof,) = result.proofs
    tight = proof.tightness is not None and proof.tightness.tight
    return {
        "trace": trace,
        "model": model,
        "rate_rps": TRACES[trace][1] * speed,
        "mix": " + ".join(f"{entry.count} x {entry.option}" for entry in result.allocation),
        "cost_usd_per_h": result.cost_usd_per_h or 0.0,
        "gap": result.gap or 0.0,
        "requests": proof.requests,
        "utilisation": proof.utilisation,
        "worst_of_limit": max((limit.measured_ms or 1e9) / limit.limit_ms for limit in proof.slo_check.limits),
        "verified": "yes" if result.verified else "no",
        "tight": "yes" if tight else "no",
        "seconds": time.perf_counter() - started_s,
    }


def _planned(trace: str, model: str, speed: int) -> Plan:
    file, rate_rps = TRACES[trace]
    trace_csv = text("power", file)
    sizes = {"preset": trace} if trace_csv is None else {"trace_csv": trace_csv}
    workload = {
        "name": trace,
        "model": model,
        "rate_rps": rate_rps * speed,
        "buckets": sizes,
        "slo": OBJECTIVES[trace, model],
    }
    request = {"workloads": [workload], "replay": {"hours": HOURS}, "time_limit_s": 600}
    return plan(
        PlanRequest.model_validate(request).explained(ExplainLevel.NONE),
        gpus=builtin_gpus(),
        models=builtin_models(),
        prices=builtin_prices(),
        now=datetime.now(UTC),
        clock_s=time.perf_counter,
    )


def _all(rows: list[Row]) -> Row:
    def share(column: str) -> str:
        return f"{sum(row[column] == 'yes' for row in rows)} of {len(rows)}"

    totals: dict[str, Any] = dict.fromkeys(rows[0], "")
    return totals | {
        "trace": "all",
        "cost_usd_per_h": sum(row["cost_usd_per_h"] for row in rows),
        "requests": sum(row["requests"] for row in rows),
        "verified": share("verified"),
        "tight": share("tight"),
        "seconds": sum(row["seconds"] for row in rows),
    }
