"""The open loop's closed forms against the replay's iterations, at the same costs and rate."""

import numpy as np
import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.sizes import SizeBuckets
from fleet.slo import Metric, Slo, Statistic
from planner.performance.coefficients import builtin_coefficients
from planner.performance.config import ReplicaConfig
from planner.performance.costs import step_costs
from planner.performance.rates import highest_rate, open_loop
from planner.replay import ReplayPool, Stream, replay

DURATION_S = 600.0
CONFIGS = (
    ReplicaConfig(builtin_models().get("Llama-3.1-70B"), builtin_gpus().get("H200-SXM"), "fp8", "fp8", 4),
    ReplicaConfig(builtin_models().get("DeepSeek-V3"), builtin_gpus().get("B200"), "fp8", "fp8", 8),
)
SLO = Slo.model_validate({"ttft_ms": {"p99": 3000}, "tpot_ms": {"mean": 40, "p99": 60}})


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("size", [(1000, 250), (200, 1000)])
def test_the_replay_at_the_estimated_rate_finds_the_estimated_latencies(
    config: ReplicaConfig, size: tuple[int, int]
) -> None:
    rate_rps = highest_rate(config, SLO, input_tokens=size[0], output_tokens=size[1]).max_rps
    loop = open_loop(config, sizes=[size], arrival_cv=1.0, coefficients=builtin_coefficients())

    def at_rate(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        return float(np.interp(rate_rps, loop.rate_rps[0], values[0]))

    batch = 1 + at_rate(loop.decoding)
    costs = step_costs(config, input_tokens=size[0], output_tokens=size[1], batch=batch)
    rng = np.random.default_rng(0)
    arrival_s = np.sort(rng.random(rng.poisson(rate_rps * DURATION_S)) * DURATION_S)
    inputs, outputs = (np.full(len(arrival_s), tokens, dtype=np.int64) for tokens in size)
    buckets = SizeBuckets(input_tokens=(size[0],), output_tokens=(size[1],), share=((1.0,),))
    routing = {f"{size[0]}x{size[1]}": {"it": 1.0}}
    found = replay(
        Stream(arrival_s, inputs, outputs, DURATION_S), [ReplayPool("it", 1, costs)], routing, buckets, seed=1
    )
    tpot_ms, ttft_ms = found.samples_ms(Metric.TPOT), found.samples_ms(Metric.TTFT)
    assert np.mean(tpot_ms) == pytest.approx(1000 * at_rate(loop.tpot_s(Statistic.MEAN)), rel=0.1)
    assert np.quantile(tpot_ms, 0.99) == pytest.approx(1000 * at_rate(loop.tpot_s(Statistic.P99)), rel=0.25)
    assert np.quantile(ttft_ms, 0.99) < 1.7 * 1000 * at_rate(loop.ttft_s(Statistic.P99))
