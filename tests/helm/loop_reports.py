"""Provides a planning loop with an SLO, and a report on it with every figure that is exported."""

from datetime import datetime

from api.schemas.planning_loops import PlanningLoopSpec, PlanningLoopStatus
from planner.request import GivenOption, PlanRequest, Workload

SIZES = {"mean": 500.0, "p50": 400.0, "p99": 1900.0, "p99_at_least": 1024.0, "p99_at_most": 2048.0}


def loop_request(gpu: str = "H100") -> PlanRequest:
    workload = {
        "name": "chat",
        "rate_rps": 2.5,
        "buckets": {"input_tokens": [1024], "output_tokens": [256], "share": [[1.0]]},
        "slo": {"ttft_ms": {"p99": 2000.0}, "tpot_ms": {"p50": 50.0}},
    }
    option = GivenOption(name="measured", gpu=gpu, price_usd_per_h=2.0, max_rps=((1.0,),))
    return PlanRequest(workloads=(Workload.model_validate(workload | {"options": (option,)}),))


def loop_spec(gpu: str = "H100") -> PlanningLoopSpec:
    return PlanningLoopSpec(request=loop_request(gpu), targets={"chat": "chat"})


def loop_status(*, at: datetime, gpu: str = "H100") -> PlanningLoopStatus:
    demand = {
        "arrivals_rps": 10.2,
        "completions_rps": 10.1,
        "forecast_rps": 12.4,
        "input_tokens": SIZES,
        "output_tokens": SIZES,
        "ttft_s": {"mean": 0.5, "p50": 0.4, "p99": 1.7},
        "tpot_s": {"mean": 0.03, "p50": 0.03, "p99": 0.06},
        "running": 40.0,
        "queued": 2.0,
        "kv_usage": 0.61,
        "prefix_hit_rate": 0.2,
        "error_rate": 0.001,
    }
    return PlanningLoopStatus.model_validate(
        {
            "phase": "applied",
            "observed_at": at.isoformat(),
            "window_end": at.isoformat(),
            "demand": {"chat": demand},
            "wanted": {"chat": {gpu: 3}},
            "drift": {gpu: {"tpot_ratio": 1.04, "ttft_ratio": 0.98, "rate_scale": 0.97, "needs_refit": False}},
        }
    )
