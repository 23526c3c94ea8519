"""Streams: the properties that repeating, scaling, shaping and synthesis preserve."""

from collections.abc import Callable
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.demand import DemandSeries
from fleet.documents import RuleError
from fleet.sizes.histogram import SizeBuckets
from fleet.traces import Trace
from planner.replay import Stream, synthetic_arrivals
from planner.replay.stream import moments


def gaps_cv(stream: Stream) -> float:
    gaps = np.diff(stream.arrival_s)
    return float(np.std(gaps) / np.mean(gaps))


def bursty(requests: int = 4000) -> Stream:
    """Ten at once, then a pause, again and again."""
    times_s = np.repeat(np.arange(requests // 10) * 10.0, 10) + np.tile(np.arange(10) * 0.01, requests // 10)
    sizes = 1 + np.arange(requests) % 17
    return Stream.of(times_s=times_s, input_tokens=sizes, output_tokens=sizes + 1, duration_s=float(requests))


class TestStream:
    def test_rows_are_sorted_and_begin_at_zero(self) -> None:
        stream = Stream.of(times_s=[7.0, 5.0, 6.0], input_tokens=[1, 2, 3], output_tokens=[4, 5, 6])
        assert list(stream.arrival_s) == [0.0, 1.0, 2.0]
        assert list(stream.input_tokens) == [2, 3, 1]
        assert stream.duration_s == 3.0  # one mean gap after the last
        assert stream.rate_rps == 1.0

    def test_empty_prompts_and_answers_count_as_one_token(self) -> None:
        stream = Stream.of(times_s=[0.0], input_tokens=[0], output_tokens=[0])
        assert (stream.input_tokens[0], stream.output_tokens[0]) == (1, 1)

    def test_a_parsed_trace_becomes_a_stream(self) -> None:
        trace = Trace(np.array([0.0, 1.0]), np.array([5, 6]), np.array([7, 8]), start=datetime(2023, 11, 16))  # noqa: DTZ001 - only carried along
        stream = Stream.of_trace(trace)
        assert stream.duration_s == trace.duration_s == 2.0
        assert list(stream.output_tokens) == [7, 8]

    def test_arrays_of_a_stream_are_read_only(self) -> None:
        with pytest.raises(ValueError, match="read-only"):
            bursty().arrival_s[0] = 5.0

    @pytest.mark.parametrize(
        ("times_s", "inputs", "outputs", "message"),
        [
            ([], [], [], "at least one request"),
            ([0.0], [1, 2], [1], "as many of each"),
            ([0.0], [-1], [1], r"input_tokens\[0\]: -1 is out of range"),
            ([0.0, float("nan")], [1, 1], [1, 1], "finite"),
        ],
    )
    def test_an_invalid_stream_is_refused(
        self, times_s: list[float], inputs: list[int], outputs: list[int], message: str
    ) -> None:
        with pytest.raises(RuleError, match=message):
            Stream.of(times_s=times_s, input_tokens=inputs, output_tokens=outputs)

    def test_a_stream_that_ends_before_its_last_request_is_refused(self) -> None:
        with pytest.raises(RuleError, match="duration_s: 1 s is out of range"):
            Stream.of(times_s=[0.0, 2.0], input_tokens=[1, 1], output_tokens=[1, 1], duration_s=1.0)


class TestDays:
    def test_repeating_keeps_rate_gaps_and_sizes(self) -> None:
        hour = bursty(3600)
        day = hour.repeated(hours=24)
        assert day.duration_s == 86_400.0
        assert day.requests == 24 * 3600
        assert gaps_cv(day) == pytest.approx(gaps_cv(hour), rel=0.01)
        assert list(day.input_tokens[3600:7200]) == list(hour.input_tokens)

    def test_repeating_for_part_of_an_hour_truncates_the_stream(self) -> None:
        assert bursty(3600).repeated(hours=0.5).requests == 1800

    def test_scaling_preserves_the_burstiness(self) -> None:
        faster = bursty().at_rate(18.0, hours=1.0)
        assert faster.rate_rps == pytest.approx(18.0, rel=0.001)
        assert gaps_cv(faster) == pytest.approx(gaps_cv(bursty()), rel=0.01)

    def test_shaping_follows_the_demand_and_preserves_the_bursts(self) -> None:
        demand = DemandSeries(step_s=3600.0, rates_rps=(1.0, 4.0, 0.0, 2.0))
        shaped = bursty().shaped(demand)
        arrived = np.histogram(shaped.arrival_s, bins=[0.0, 3600.0, 7200.0, 10_800.0, 14_400.0])[0]
        assert list(arrived) == pytest.approx([3600, 14_400, 0, 7200], abs=10)
        assert shaped.duration_s == demand.duration_s
        assert gaps_cv(shaped) > 0.9 * gaps_cv(bursty())

    @given(
        rates=st.lists(st.sampled_from((0.0, 0.5, 2.0, 7.0)), min_size=1, max_size=6).filter(any),
        share=st.floats(0.0, 0.999),
    )
    def test_moments_invert_the_cumulative_demand(self, rates: list[float], share: float) -> None:
        """The expected number of requests up to a time equals the integral of the series."""
        demand = DemandSeries(step_s=10.0, rates_rps=tuple(rates))
        expected = share * demand.requests
        moment_s = float(moments(np.array([expected]), demand)[0])
        steps, rest_s = divmod(moment_s, demand.step_s)
        before = sum(rates[: int(steps)]) * demand.step_s
        within = rates[int(steps)] * rest_s if int(steps) < len(rates) else 0.0
        assert before + within == pytest.approx(expected, abs=1e-9)

    def test_an_oversized_stream_is_refused_before_it_is_built(self) -> None:
        rng = np.random.default_rng(0)
        many: list[Callable[[], Stream]] = [
            lambda: bursty().repeated(hours=1e8),
            lambda: bursty().shaped(DemandSeries.constant(1e9)),
            lambda: synthetic_arrivals(TestSynthetic.SIZES, DemandSeries.constant(1e9), rng=rng),
        ]
        for make in many:
            with pytest.raises(RuleError, match="requests, expected at most 10,000,000"):
                make()

    @pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
    def test_times_and_factors_are_positive_numbers(self, number: float) -> None:
        with pytest.raises(RuleError, match=r"factor: .* is out of range"):
            bursty().scaled(number)
        with pytest.raises(RuleError, match=r"hours: .* is out of range"):
            bursty().repeated(hours=number)


class TestSynthetic:
    SIZES = SizeBuckets(input_tokens=(100, 1000), output_tokens=(10, 50), share=((0.5, 0.2), (0.3, 0.0)))

    @pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
    def test_gaps_have_the_requested_variation(self, cv: float) -> None:
        demand = DemandSeries.constant(10.0, duration_s=20_000.0)
        stream = synthetic_arrivals(self.SIZES, demand, rng=np.random.default_rng(5), cv=cv)
        assert gaps_cv(stream) == pytest.approx(cv, rel=0.05)
        assert stream.rate_rps == pytest.approx(10.0, rel=0.03)

    def test_sizes_follow_the_histogram(self) -> None:
        demand = DemandSeries.constant(10.0, duration_s=5000.0)
        stream = synthetic_arrivals(self.SIZES, demand, rng=np.random.default_rng(5))
        found = SizeBuckets.from_requests(
            input_tokens=stream.input_tokens,
            output_tokens=stream.output_tokens,
            input_edges=self.SIZES.input_tokens,
            output_edges=self.SIZES.output_tokens,
        )
        assert np.array(found.share) == pytest.approx(np.array(self.SIZES.share), abs=0.01)
        assert stream.input_tokens.max() <= 1000
        assert stream.input_tokens.min() >= 1

    def test_the_rate_follows_the_series(self) -> None:
        demand = DemandSeries(step_s=1000.0, rates_rps=(5.0, 20.0))
        stream = synthetic_arrivals(self.SIZES, demand, rng=np.random.default_rng(5))
        first, second = np.histogram(stream.arrival_s, bins=[0.0, 1000.0, 2000.0])[0]
        assert first == pytest.approx(5000, rel=0.06)
        assert second == pytest.approx(20_000, rel=0.03)

    def test_a_series_without_demand_is_refused(self) -> None:
        with pytest.raises(RuleError, match="at least one request"):
            synthetic_arrivals(self.SIZES, DemandSeries.constant(0.0), rng=np.random.default_rng(0))

    def test_a_variation_out_of_range_is_refused(self) -> None:
        with pytest.raises(RuleError, match="cv: 0 is out of range"):
            synthetic_arrivals(self.SIZES, DemandSeries.constant(1.0), rng=np.random.default_rng(0), cv=0.0)
