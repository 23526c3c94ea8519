"""Demand over time: form, totals and scaling."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.demand import DemandSeries
from fleet.documents import parse_document, read_model, write_model
from fleet.errors import DocumentError


def read(text: str) -> DemandSeries:
    return read_model(parse_document(text, name="demand.yaml"), DemandSeries)


rates = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)
series = st.builds(
    DemandSeries,
    start=st.none() | st.datetimes(timezones=st.just(UTC)),
    step_s=st.floats(1, 86_400),
    rates_rps=rates.map(tuple),
)


class TestForm:
    def test_a_series_is_read(self) -> None:
        demand = read("start: 2026-11-01T00:00:00Z\nstep_s: 3600\nrates_rps: [1, 2.5, 0]\n")
        assert demand.start == datetime(2026, 11, 1, tzinfo=UTC)
        assert (demand.duration_s, demand.requests, demand.peak_rps) == (10_800, 12_600, 2.5)

    def test_a_constant_rate_is_a_series_of_one_step(self) -> None:
        demand = DemandSeries.constant(30.0)
        assert (demand.duration_s, demand.requests, demand.peak_rps) == (3600, 108_000, 30)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("step_s: 60\nrates_rps: []", "line 2: rates_rps: is empty, expected at least one"),
            (
                "step_s: 60\nrates_rps: [1, -1]",
                "line 2: rates_rps[1]: input should be greater than or equal to 0, got -1",
            ),
            ("step_s: 60\nrates_rps: [1, .nan]", "line 2: rates_rps[1]: expected a finite number, got nan"),
            ("step_s: 0\nrates_rps: [1]", "line 1: step_s: input should be greater than 0, got 0"),
            ("step_s: 9e8\nrates_rps: [1, 2]", "line 1: step_s: of 2 steps must be at most 5e+08 s"),
            (
                "start: 2026-11-01T00:00:00\nstep_s: 60\nrates_rps: [1]",
                "line 1: start: input should have timezone info",
            ),
            ("start: NO\nstep_s: 60\nrates_rps: [1]", "line 1: start: expected a date in ISO 8601"),
            ("rates_rps: [1]", "line 1: step_s: is required"),
        ],
    )
    def test_an_invalid_series_is_refused(self, text: str, problem: str) -> None:
        with pytest.raises(DocumentError) as caught:
            read(text)
        assert str(caught.value.problems[0]).startswith(problem)

    @given(series)
    def test_writing_and_reading_gives_the_same(self, demand: DemandSeries) -> None:
        assert read(write_model(demand)) == demand
        assert read(demand.model_dump_json()) == demand


@given(series, st.floats(0, 100))
def test_scaling_multiplies_the_requests_and_keeps_the_step(demand: DemandSeries, factor: float) -> None:
    assert demand.scaled(factor).requests == pytest.approx(demand.requests * factor)
    assert demand.scaled(factor).step_s == demand.step_s
