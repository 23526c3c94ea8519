"""Benchmark results override the performance model for the measured shape."""

from typing import Any

import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.options.builder import candidates
from planner.options.search import Candidate
from planner.profiles import Profiles
from planner.request import PlanRequest
from planner.throughput import ThroughputSource
from tests.planner.estimators import simple
from tests.planner.requests import from_offers, offer

RUN = {
    "model": "Llama-3.1-8B",
    "gpu": "H100",
    "tensor_parallel": 2,
    "input_tokens": 500,
    "output_tokens": 500,
    "tpot_ms": {"mean": 20.0},
    "ttft_ms": {"mean": 200.0},
    "source": "a test",
    "date": "2026-11-01",
}
SWEEP = [RUN | {"offered_rps": rps, "achieved_rps": rps, "tpot_ms": {"mean": 10.0 * rps}} for rps in (4.0, 8.0, 12.0)]
SIZES = {"input_tokens": [500], "output_tokens": [500], "share": [[1.0]]}


def found(*points: dict[str, Any], **changes: Any) -> dict[str, Candidate]:
    offers = [offer("here/h100x8", "H100-SXM", 20, gpus_per_instance=8)]
    policy = {"change": {"max_started": 99}}  # moves count, so that wide replicas are not dominated
    request = PlanRequest.model_validate(
        from_offers(buckets=SIZES, **changes) | {"offers": offers, "policy": policy, "current": []}
    )
    profiles = Profiles.model_validate({"points": points}) if points else None
    options = candidates(
        request,
        gpus=builtin_gpus(),
        models=builtin_models(),
        offers=request.offers or (),
        estimator=simple,
        profiles=profiles,
    )
    return {option.name.removeprefix("here/h100x8/"): option for option in options}


def test_a_measured_rate_replaces_the_computed_one() -> None:
    measured = found(*SWEEP)
    ((rate_rps,),) = measured["tp2"].throughput.max_rps
    assert rate_rps == pytest.approx(10.0)  # mean TPOT crosses 100 ms there
    assert measured["tp2"].throughput.provenance is ThroughputSource.MEASURED
    assert measured["tp2"].worst_rps is not None
    assert measured["tp2"].worst_rps[0] <= 10.0


def test_unmeasured_shapes_keep_their_computed_rate() -> None:
    measured, computed = found(*SWEEP), found()
    for name in ("tp1", "tp4", "tp8"):
        assert measured[name].throughput == computed[name].throughput
        assert measured[name].throughput.provenance is ThroughputSource.CALIBRATED


@pytest.mark.parametrize("other", [{"model": "Llama-3.1-70B"}, {"gpu": "B200"}, {"precision": "fp8"}])
def test_measurements_of_another_configuration_are_ignored(other: dict[str, str]) -> None:
    assert found(*(point | other for point in SWEEP))["tp2"].throughput == found()["tp2"].throughput


def test_the_engine_with_the_most_runs_is_used() -> None:
    faster = [point | {"engine": "other", "tpot_ms": {"mean": 1.0}} for point in SWEEP[:2]]
    assert found(*SWEEP, *faster)["tp2"].throughput.max_rps == found(*SWEEP)["tp2"].throughput.max_rps
