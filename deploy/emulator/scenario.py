"""The scenario of the demo: one chat workload, three GPU types at invented prices, and a day in three acts.

At night one A100 is enough; by day an H100 and three L4 are cheapest; then the row is limited to 1,000 W, and an H100
at a lower clock serves what it can.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from deploy.emulator.worker import WorkerSpec, tuning
from fleet.gpus import builtin_gpus
from fleet.offers import Market, Offer
from planner.request import PlanRequest

WORKLOAD = "chat"
MODEL = "Llama-3.1-8B"
POOLS = {"H100-SXM": "on-h100", "A100-80GB-SXM": "on-a100", "L4": "on-l4"}
INPUT_TOKENS = [1000, 4000]
OUTPUT_TOKENS = 500
MAX_GPUS = 4  # of one type, in all acts
_OFFERS = {"H100-SXM": (3.0, 1), "A100-80GB-SXM": (1.3, 1), "L4": (0.4, MAX_GPUS)}  # price, available


def _max_in_flight(gpu: str) -> int:
    """Return how many of the shortest requests fit into the cache of a replica; further ones wait in the router."""
    costs = tuning(WorkerSpec(gpu=gpu, model=MODEL)).costs
    return min(costs.max_sequences, costs.cache_tokens // (min(INPUT_TOKENS) + OUTPUT_TOKENS))


MAX_IN_FLIGHT = {deployment: _max_in_flight(gpu) for gpu, deployment in POOLS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    name: str
    rate_rps: float
    limit_w: float | None = None

    def request(self, *, today: date) -> PlanRequest:
        domains = [] if self.limit_w is None else [{"name": "row", "limit_w": self.limit_w}]
        workload = {
            "name": WORKLOAD,
            "model": MODEL,
            "rate_rps": self.rate_rps,
            "buckets": {"input_tokens": INPUT_TOKENS, "output_tokens": [OUTPUT_TOKENS], "share": [[0.6], [0.4]]},
            "slo": {"ttft_ms": {"p95": 4000}, "tpot_ms": {"p95": 150}},
        }
        offers = [_offer(gpu, today=today) for gpu in POOLS]
        return PlanRequest.model_validate({"workloads": [workload], "offers": offers, "power_domains": domains})


ACTS = (
    Act(name="night", rate_rps=3.0),
    Act(name="day", rate_rps=8.0),
    Act(name="power cut", rate_rps=6.0, limit_w=1000.0),
)


def accelerators() -> Mapping[str, str]:
    """Return the accelerator label of the Ray nodes of each GPU type."""
    return {gpu: builtin_gpus().get(gpu).ray_accelerator or gpu for gpu in POOLS}


def _offer(gpu: str, *, today: date) -> Offer:
    price, available = _OFFERS[gpu]
    return Offer(
        id=f"demo/{gpu.lower()}",
        provider="demo",
        region="here",
        market=Market.ON_DEMAND,
        gpu=gpu,
        gpus_per_instance=1,
        price_usd_per_h=price,
        available=available,
        as_of=today,
        source="invented for the demo",
    )
