"""Demand over time: no request is lost or made up by looking at it in other steps."""

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
    def test_what_is_no_series_is_refused(self, text: str, problem: str) -> None:
        with pytest.raises(DocumentError) as caught:
            read(text)
        assert str(caught.value.problems[0]).startswith(problem)

    @given(series)
    def test_writing_and_reading_gives_the_same(self, demand: DemandSeries) -> None:
        assert read(write_model(demand)) == demand
        assert read(demand.model_dump_json()) == demand


class TestQuestions:
    def test_a_quantile_is_a_rate_that_occurs(self) -> None:
        demand = DemandSeries(step_s=60, rates_rps=(4, 1, 3, 2))
        assert [demand.quantile_rps(q) for q in (0, 0.5, 0.75, 0.76, 1)] == [1, 2, 3, 4, 4]

    @given(series, st.floats(0, 1))
    def test_so_many_steps_stay_at_or_below_their_quantile(self, demand: DemandSeries, quantile: float) -> None:
        value = demand.quantile_rps(quantile)
        assert sum(rate <= value for rate in demand.rates_rps) >= quantile * len(demand.rates_rps) - 1e-6
        assert demand.quantile_rps(1) == demand.peak_rps

    def test_the_rate_changes_at_the_start_of_a_step(self) -> None:
        demand = DemandSeries(step_s=60, rates_rps=(1, 2))
        assert [demand.rate_at(offset) for offset in (0, 59.9, 60, 119.9)] == [1, 1, 2, 2]

    @pytest.mark.parametrize("offset_s", [-1.0, 120.0, float("nan")])
    def test_there_is_no_rate_outside(self, offset_s: float) -> None:
        with pytest.raises(ValueError, match="out of range, expected 0 to less than 120 s"):
            DemandSeries(step_s=60, rates_rps=(1, 2)).rate_at(offset_s)

    @pytest.mark.parametrize("quantile", [-0.1, 1.1, float("nan")])
    def test_there_is_no_quantile_outside(self, quantile: float) -> None:
        with pytest.raises(ValueError, match="out of range, expected 0 to 1"):
            DemandSeries.constant(1).quantile_rps(quantile)


class TestResampling:
    @given(series, st.integers(1, 200))
    def test_time_and_requests_are_kept(self, demand: DemandSeries, periods: int) -> None:
        resampled = demand.resampled(periods)
        assert len(resampled.rates_rps) == periods
        assert resampled.start == demand.start
        assert resampled.duration_s == pytest.approx(demand.duration_s)
        assert resampled.requests == pytest.approx(demand.requests, rel=1e-9, abs=1e-9)

    @given(series, st.integers(1, 200))
    def test_rates_stay_within_those_they_come_from(self, demand: DemandSeries, periods: int) -> None:
        rates_rps = demand.resampled(periods).rates_rps
        slack = 1e-9 * max(1.0, sum(demand.rates_rps))
        assert min(rates_rps) >= max(0.0, min(demand.rates_rps) - slack)
        assert max(rates_rps) <= demand.peak_rps + slack

    @given(series, st.integers(1, 8))
    def test_finer_steps_and_back_give_the_same(self, demand: DemandSeries, factor: int) -> None:
        there = demand.resampled(len(demand.rates_rps) * factor)
        back = there.resampled(len(demand.rates_rps))
        assert back.rates_rps == pytest.approx(demand.rates_rps, rel=1e-6, abs=1e-6)

    def test_a_step_that_is_cut_gives_each_part_its_share(self) -> None:
        assert DemandSeries(step_s=60, rates_rps=(1, 4, 7)).resampled(2).rates_rps == pytest.approx((2.0, 6.0))

    @pytest.mark.parametrize("periods", [0, -1, 10_000_000])
    def test_the_number_of_periods_is_bounded(self, periods: int) -> None:
        with pytest.raises(ValueError, match="out of range, expected 1 to 1,000,000"):
            DemandSeries.constant(1).resampled(periods)


@given(series, st.floats(0, 100))
def test_scaling_scales_every_request(demand: DemandSeries, factor: float) -> None:
    assert demand.scaled(factor).requests == pytest.approx(demand.requests * factor)
    assert demand.scaled(factor).step_s == demand.step_s
