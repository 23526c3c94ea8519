"""The closed forms of the open loop against the iterations of the replay, at the same costs and rate."""

from dataclasses import dataclass

import numpy as np
import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.sizes.histogram import SizeBuckets
from fleet.slo import Metric, Slo, Statistic
from planner.performance.coefficients import builtin_coefficients
from planner.performance.config import ReplicaConfig
from planner.performance.open_loop import OpenLoop
from planner.performance.rates import open_loop
from planner.performance.steps import step_costs
from planner.replay import ReplayPool, Stream, replay
from tests.planner.performance.synthetic_points import highest_rate

DURATION_S = 600.0
SHORT = ReplicaConfig(builtin_models().get("Llama-3.1-8B"), builtin_gpus().get("H100-SXM"))
SHORT_SLO = Slo.model_validate({"tpot_ms": {"p99": 60}})
CONFIGS = (
    ReplicaConfig(builtin_models().get("Llama-3.1-70B"), builtin_gpus().get("H200-SXM"), "fp8", "fp8", 4),
    ReplicaConfig(builtin_models().get("DeepSeek-V3"), builtin_gpus().get("B200"), "fp8", "fp8", 8),
)
SLO = Slo.model_validate({"ttft_ms": {"p99": 3000}, "tpot_ms": {"mean": 40, "p99": 60}})


Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Compared:
    """Samples of the replay, and the loop that predicts them, read at the same rate."""

    tpot_s: Values
    ttft_s: Values
    loop: OpenLoop
    rate_rps: float

    def predicted_s(self, metric: Metric, statistic: Statistic) -> float:
        return float(np.interp(self.rate_rps, self.loop.rate_rps[0], self.loop.latency_s(metric, statistic)[0]))


def compare(config: ReplicaConfig, slo: Slo, size: tuple[int, int]) -> Compared:
    rate_rps = highest_rate(config, slo, input_tokens=size[0], output_tokens=size[1]).max_rps
    loop = open_loop(config, sizes=[size], arrival_cv=1.0, coefficients=builtin_coefficients())
    batch = 1 + float(np.interp(rate_rps, loop.rate_rps[0], loop.decoding[0]))
    costs = step_costs(config, input_tokens=size[0], output_tokens=size[1], batch=batch)
    rng = np.random.default_rng(0)
    arrival_s = np.sort(rng.random(rng.poisson(rate_rps * DURATION_S)) * DURATION_S)
    inputs, outputs = (np.full(len(arrival_s), tokens, dtype=np.int64) for tokens in size)
    buckets = SizeBuckets(input_tokens=(size[0],), output_tokens=(size[1],), share=((1.0,),))
    routing = {f"{size[0]}x{size[1]}": {"it": 1.0}}
    found = replay(
        Stream(arrival_s, inputs, outputs, DURATION_S), [ReplayPool("it", 1, costs)], routing, buckets, seed=1
    )
    tpot_s, ttft_s = (found.samples_ms(metric) / 1000 for metric in (Metric.TPOT, Metric.TTFT))
    return Compared(tpot_s, ttft_s, loop, rate_rps)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("size", [(1000, 250), (200, 1000)])
def test_replayed_latencies_at_the_estimated_rate_match_the_estimates(
    config: ReplicaConfig, size: tuple[int, int]
) -> None:
    found = compare(config, SLO, size)
    assert np.mean(found.tpot_s) == pytest.approx(found.predicted_s(Metric.TPOT, Statistic.MEAN), rel=0.1)
    assert np.quantile(found.tpot_s, 0.99) == pytest.approx(found.predicted_s(Metric.TPOT, Statistic.P99), rel=0.25)
    assert np.quantile(found.ttft_s, 0.99) < 1.7 * found.predicted_s(Metric.TTFT, Statistic.P99)


@pytest.mark.parametrize("size", [(2000, 10), (2000, 30), (4000, 10), (4000, 30), (4000, 100)])
def test_short_answers_wait_for_whole_prompt_chunks(size: tuple[int, int]) -> None:
    """A model that spreads prompts evenly over the tokens of an answer predicts half of the replayed p99."""
    found = compare(SHORT, SHORT_SLO, size)
    ratio = np.quantile(found.tpot_s, 0.99) / found.predicted_s(Metric.TPOT, Statistic.P99)
    assert 0.65 < ratio < 1.3
