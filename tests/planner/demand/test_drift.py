import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.demand.drift import MIN_REQUESTS, Drift, DriftState, Prediction, assess, observed, predict
from planner.performance.config import ReplicaConfig

INTERVAL = (0.8, 1.25)
PREDICTION = Prediction(tpot_s=0.02, ttft_s=0.1, tpot_interval=INTERVAL, ttft_interval=(0.5, 2.0))


def after(ratios: list[float], *, requests: float = 500.0) -> Drift:
    state = DriftState()
    for ratio in ratios:
        state = observed(state, PREDICTION, tpot_s=0.02 * ratio, ttft_s=0.1, requests=requests)
    return assess(state, PREDICTION)


class TestScale:
    def test_a_slower_replica_is_planned_with_a_lower_rate(self) -> None:
        drift = after([1.2] * 20)
        assert drift.tpot_ratio == pytest.approx(1.2, rel=0.01)
        assert drift.rate_scale == pytest.approx(0.83, abs=0.01)
        assert not drift.needs_refit

    def test_beyond_the_interval_the_scale_stays_at_its_end_and_a_fit_is_due(self) -> None:
        drift = after([2.0] * 20)
        assert drift.rate_scale == pytest.approx(1 / INTERVAL[1])
        assert drift.needs_refit

    @given(st.lists(st.floats(0.05, 20), min_size=1, max_size=20))
    def test_the_scale_stays_in_the_interval(self, ratios: list[float]) -> None:
        assert 1 / INTERVAL[1] - 0.01 <= after(ratios).rate_scale <= 1 / INTERVAL[0] + 0.01

    def test_noise_is_not_planned_with(self) -> None:
        assert after([0.9, 1.1, 1.0, 1.04, 0.96]).rate_scale == 1.0

    def test_few_requests_decide_nothing(self) -> None:
        drift = after([2.0], requests=MIN_REQUESTS / 2)
        assert (drift.tpot_ratio, drift.rate_scale) == (None, 1.0)

    def test_a_repaired_machine_returns_to_its_predicted_rate(self) -> None:
        assert after([1.2] * 20 + [1.0] * 40).rate_scale == 1.0


class TestPrediction:
    CONFIG = ReplicaConfig(model=builtin_models().get("Llama-3.1-8B"), gpu=builtin_gpus().get("H100-SXM"))

    def predicted(self, rate_rps: float) -> Prediction | None:
        return predict(self.CONFIG, input_tokens=1000, output_tokens=250, rate_rps=rate_rps)

    def test_a_busier_replica_is_slower(self) -> None:
        idle, busy = self.predicted(0.1), self.predicted(20.0)
        assert idle is not None
        assert busy is not None
        assert idle.tpot_s < busy.tpot_s
        assert idle.ttft_s < busy.ttft_s

    def test_a_saturated_replica_has_no_prediction(self) -> None:
        assert self.predicted(1_000.0) is None
