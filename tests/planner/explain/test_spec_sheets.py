"""The least work of a request by its size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner import PlanRequest
from planner.explain.ideal_bound import Work, mean_work, request_work
from planner.explain.spec_sheets import work
from planner.options.builder import candidates
from tests.planner.requests import from_offers

MODEL = builtin_models().get("Llama-3.1-8B")


def per_bucket(**changes: object) -> tuple[tuple[Work, ...], PlanRequest]:
    request = PlanRequest.model_validate({**from_offers(**changes), "replay": None})
    return works_of(request), request


def works_of(request: PlanRequest) -> tuple[Work, ...]:
    found = candidates(request, gpus=builtin_gpus(), models=builtin_models(), offers=request.offers or ())
    (own,) = work(request, found)
    assert own is not None
    return own


def trace(rows: list[tuple[int, int]], *, every_s: float = 1.0) -> dict[str, object]:
    body = "".join(f"{number * every_s},{inputs},{outputs}\n" for number, (inputs, outputs) in enumerate(rows))
    return {
        "trace_csv": f"time,input_tokens,output_tokens\n{body}",
        "input_tokens": [500, 4000],
        "output_tokens": [500],
    }


class TestSizes:
    def test_a_histogram_counts_its_smallest_requests(self) -> None:
        own, _ = per_bucket()
        assert own == tuple(request_work(MODEL, input_tokens=tokens, output_tokens=1) for tokens in (1, 501))

    def test_a_trace_counts_its_own(self) -> None:
        rows = [(100, 40), (300, 80), (900, 10)]
        own, _ = per_bucket(buckets=trace(rows), rate_rps=20)
        small = [request_work(MODEL, input_tokens=i, output_tokens=o) for i, o in rows[:2]]
        assert own[0].flops == pytest.approx(sum(part.flops for part in small) / 2)
        assert own[0].moved_bytes == pytest.approx(sum(part.moved_bytes for part in small) / 2)
        assert own[1] == request_work(MODEL, input_tokens=900, output_tokens=10)

    def test_the_peak_of_a_series_may_queue_where_a_replay_sizes_the_plan(self) -> None:
        demand = {"start": "2026-11-01T00:00:00Z", "step_s": 60, "rates_rps": [5, 15]}
        fields = from_offers(rate_rps=None, demand=demand)
        steady = works_of(PlanRequest.model_validate(fields))
        replayed = works_of(PlanRequest.model_validate({**fields, "replay": {"hours": 1}}))
        judged = works_of(PlanRequest.model_validate({**fields, "replay": {"hours": 1, "size": False}}))
        assert judged == steady
        assert [part.flops for part in replayed] == pytest.approx([part.flops * 10 / 15 for part in steady])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 2000)), min_size=1, max_size=20))
def test_the_mean_of_requests_is_the_mean_of_their_work(rows: list[tuple[int, int]]) -> None:
    inputs, outputs = (np.array(column) for column in zip(*rows, strict=True))
    mean = mean_work(MODEL, input_tokens=inputs, output_tokens=outputs)
    each = [request_work(MODEL, input_tokens=i, output_tokens=o) for i, o in rows]
    assert mean.flops == pytest.approx(sum(part.flops for part in each) / len(each))
    assert mean.moved_bytes == pytest.approx(sum(part.moved_bytes for part in each) / len(each))
    assert min(mean.flops, mean.moved_bytes) >= 0
