"""Requests as a user writes them, planned with a constant clock."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.offers import PriceSheet, builtin_prices
from planner import Plan, PlanRequest, plan

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def given(**changes: Any) -> dict[str, Any]:
    """One workload of two by two buckets with two options whose throughput is given; `changes` go into the workload."""
    workload = {
        "name": "chat",
        "rate_rps": 30,
        "buckets": {
            "input_tokens": [500, 2000],
            "output_tokens": [250, 1000],
            "share": [[0.4, 0.1], [0.3, 0.2]],
        },
        "options": [
            {"name": "small", "gpu": "L4", "price_usd_per_h": 0.8, "max_rps": [[2, 1], [1, 0]]},
            {"name": "large", "gpu": "H100", "price_usd_per_h": 4, "max_rps": [[30, 10], [15, 6]], "available": 4},
        ],
    }
    return {"workloads": [workload | changes]}


def from_offers(**changes: Any) -> dict[str, Any]:
    """One workload with options from three offers; `changes` go into the workload."""
    workload = {
        "name": "chat",
        "model": "Llama-3.1-8B",
        "rate_rps": 20,
        "slo": {"tpot_ms": {"mean": 100}, "ttft_ms": {"mean": 2000}},
        "buckets": {"input_tokens": [500, 4000], "output_tokens": [500], "share": [[0.7], [0.3]]},
    }
    return {"workloads": [workload | changes], "offers": OFFERS}


def offer(offer_id: str, gpu: str, price_usd_per_h: float, **more: Any) -> dict[str, Any]:
    """An on-demand offer of twenty days before NOW."""
    where = {"provider": "here", "region": "one", "market": "on-demand", "as_of": "2026-11-01", "source": "a test"}
    return {"id": offer_id, "gpu": gpu, "price_usd_per_h": price_usd_per_h, **where, **more}


OFFERS = [
    offer("here/l4", "L4", 0.8),
    offer("here/a100", "A100-80GB-SXM", 2.5, available=3),
    offer("here/h100x8", "H100-SXM", 32, gpus_per_instance=8, quota=2),
]


def solved(
    request: Mapping[str, Any],
    *,
    prices: PriceSheet | None = None,
    clock_s: Callable[[], float] = lambda: 0.0,
    **policy: Any,
) -> Plan:
    """The plan for a request; `policy` are fields of the request beside its workloads."""
    return plan(
        PlanRequest.model_validate({**request, **policy}),
        gpus=builtin_gpus(),
        models=builtin_models(),
        prices=builtin_prices() if prices is None else prices,
        now=NOW,
        clock_s=clock_s,
    )
