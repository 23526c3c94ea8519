"""Traces from CSV: every published format is read, and an invalid line is reported by number."""

from datetime import UTC, datetime
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.errors import DocumentError
from fleet.sizes.bucketing import Cuts, round_sizes
from fleet.sizes.histogram import SizeBuckets
from fleet.traces import Trace, read_trace

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
BURSTGPT_WITH_SESSIONS = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
0.5,1,2.3,GPT-4,100,50,150,Conversation log
"""
MOONCAKE = "timestamp_ms,input_length,output_length,n_hash_blocks\n27482,6955,52,14\n30535,6472,26,13\n"
PLAIN = "time,input_tokens,output_tokens\n0,10,1\n0.5,20,2\n2,30,3\n"


def read(text: str) -> Trace:
    return read_trace(text, name="trace.csv")


def trace_of(inputs: list[int], outputs: list[int], arrival_s: list[float] | None = None) -> Trace:
    times = arrival_s if arrival_s is not None else [float(n) for n in range(len(inputs))]
    return Trace(arrival_s=np.array(times), input_tokens=np.array(inputs), output_tokens=np.array(outputs))


class TestForms:
    def test_azure_dates_have_seven_decimal_digits(self) -> None:
        trace = read(AZURE)
        assert trace.start == datetime(2023, 11, 16, 18, 15, 46, 680590, tzinfo=UTC)
        assert trace.arrival_s == pytest.approx([0, 4.314579, 4.541877])
        assert trace.input_tokens.tolist() == [374, 396, 879]
        assert trace.output_tokens.tolist() == [44, 109, 55]

    def test_azure_dates_of_2024_have_a_time_zone(self) -> None:
        text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00+00:00,5,6\n2024-05-12 02:00:01+02:00,7,8\n"
        trace = read(text)
        assert trace.arrival_s.tolist() == [0, 1]
        assert trace.start == datetime(2024, 5, 12, tzinfo=UTC)

    def test_failed_requests_of_burstgpt_are_omitted_and_counted(self) -> None:
        trace = read(BURSTGPT)
        assert (len(trace), trace.failed) == (2, 1)
        assert trace.arrival_s.tolist() == [0, 113]
        assert trace.input_tokens.tolist() == [472, 417]
        assert read(BURSTGPT_WITH_SESSIONS).output_tokens.tolist() == [50]

    @pytest.mark.parametrize("column", ["timestamp_ms", "timestamp"])
    def test_mooncake_times_are_in_milliseconds(self, column: str) -> None:
        trace = read(MOONCAKE.replace("timestamp_ms", column))
        assert trace.arrival_s == pytest.approx([0, 3.053])
        assert trace.input_tokens.tolist() == [6955, 6472]

    @pytest.mark.parametrize("column", ["time", "time_s", "arrival_s", "TIME"])
    def test_the_plain_format_accepts_several_time_columns(self, column: str) -> None:
        trace = read(PLAIN.replace("time", column))
        assert trace.arrival_s.tolist() == [0, 0.5, 2]
        assert trace.start is None

    def test_json_lines_have_the_fields_of_a_format(self) -> None:
        line = '{{"timestamp": {}, "input_length": {}, "output_length": 5, "hash_ids": [0, 1]}}\n'
        trace = read(line.format(27482, 6955) + "\n" + line.format(30535, 6472))
        assert trace.arrival_s == pytest.approx([0, 3.053])
        assert trace.input_tokens.tolist() == [6955, 6472]

    @pytest.mark.parametrize("second", ["[1]", '{"time_s": 1', '{"time_s": 1, "input_tokens": 1}'])
    def test_an_invalid_json_line_is_reported_by_number(self, second: str) -> None:
        with pytest.raises(DocumentError, match="2"):
            read('{"time_s": 0, "input_tokens": 1, "output_tokens": 2}\n' + second)

    def test_the_plain_format_may_have_dates_a_byte_order_mark_and_empty_lines(self) -> None:
        trace = read("\ufefftime,input_tokens,output_tokens\n\n2026-11-21T06:00:00Z,1,2\n2026-11-21T06:01:00Z,3,4\n\n")
        assert trace.arrival_s.tolist() == [0, 60]

    def test_a_trace_starts_at_its_first_successful_request(self) -> None:
        text = BURSTGPT.replace("5,ChatGPT,472,18", "2026-01-01T00:00:00,ChatGPT,472,0").replace(
            "45,ChatGPT,1087,0", "2026-01-01T00:00:40,ChatGPT,1087,9"
        )
        trace = read(text.replace("118,", "2026-01-01T00:01:58,"))
        assert trace.start == datetime(2026, 1, 1, 0, 0, 40, tzinfo=UTC)
        assert trace.arrival_s.tolist() == [0, 78]

    @given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1))
    def test_requests_are_sorted_by_arrival(self, rows: list[tuple[int, int, int]]) -> None:
        text = "time,input_tokens,output_tokens\n" + "\n".join(",".join(map(str, row)) for row in rows)
        trace = read(text)
        expected = sorted(rows, key=lambda row: row[0])
        first = expected[0][0]
        assert list(zip(trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True)) == [
            (float(time - first), inputs, outputs) for time, inputs, outputs in expected
        ]

    def test_the_arrays_are_read_only(self) -> None:
        with pytest.raises(ValueError, match="read-only"):
            read(PLAIN).input_tokens[0] = 7


class TestWrongFiles:
    @pytest.mark.parametrize(
        ("text", "problems"),
        [
            (PLAIN.replace("20,2", "20.5,2"), ["line 3: input_tokens: expected a whole number from 0 to 100,000,000"]),
            (PLAIN.replace("20,2", "-20,2"), ["line 3: input_tokens: expected a whole number from 0 to 100,000,000"]),
            (PLAIN.replace("20,2", "nan,2"), ["line 3: input_tokens: expected a whole number from 0 to 100,000,000"]),
            (PLAIN.replace("20,2", "20,0"), ["line 3: output_tokens: expected a whole number from 1 to 100,000,000"]),
            (PLAIN.replace("20,2", "20,x"), ["line 3: output_tokens: expected a whole number from 1 to 100,000,000"]),
            (PLAIN.replace("0.5,", "soon,"), ["line 2: time: expected a number or a time in ISO 8601, got '0'"]),
            (PLAIN.replace("0.5,20,2", "0.5,20"), ["line 3: has 2 columns, expected at least 3"]),
            (PLAIN.replace("0,10,1", "inf,10,1"), ["line 2: time: expected a number or a time in ISO 8601"]),
            ("time,input_tokens,output_tokens\n", ["has no requests, expected 1 to 10,000,000"]),
            ("", ["line 1: unknown header '', expected the columns timestamp,contexttokens,generatedtokens (Azure)"]),
            ("a,b\n1,2\n", ["line 1: unknown header 'a,b'"]),
            (PLAIN.replace("10,1", "x,y"), ["line 2: input_tokens: expected a whole number"]),
        ],
    )
    def test_an_invalid_line_is_reported_by_number(self, text: str, problems: list[str]) -> None:
        with pytest.raises(DocumentError) as caught:
            read(text)
        assert caught.value.name == "trace.csv"
        for problem, expected in zip(caught.value.problems, problems, strict=False):
            assert str(problem).startswith(expected)

    def test_the_number_of_reported_errors_is_bounded(self) -> None:
        with pytest.raises(DocumentError) as caught:
            read("time,input_tokens,output_tokens\n" + "0,x,1\n" * 5000)
        assert len(caught.value.problems) == 100

    def test_a_trace_with_only_failed_requests_is_refused(self) -> None:
        with pytest.raises(DocumentError, match="every request failed"):
            read("Timestamp,Request tokens,Response tokens\n1,5,0\n2,6,0\n")


class TestDemand:
    def test_each_arrival_counts_in_its_step(self) -> None:
        series = trace_of([1] * 5, [1] * 5, [0, 1, 9.5, 10, 25]).demand(10)
        assert series.rates_rps == (0.3, 0.1, 0.1)

    def test_a_trace_shorter_than_a_step_is_one_step_of_its_own_length(self) -> None:
        series = trace_of([1] * 3, [1] * 3, [0, 1, 2]).demand(300)
        assert (series.step_s, series.rates_rps) == (3.0, (1.0,))

    def test_the_demand_starts_with_the_trace(self) -> None:
        assert read(AZURE).demand(2).start == datetime(2023, 11, 16, 18, 15, 46, 680590, tzinfo=UTC)

    @given(
        st.lists(st.floats(0, 1e5, allow_subnormal=False), min_size=2, max_size=100)
        .map(sorted)
        .map(lambda times: [time - times[0] for time in times]),
        st.floats(1, 1e4),
    )
    def test_the_demand_has_all_requests_of_the_trace(self, times: list[float], step_s: float) -> None:
        if times[-1] < 1:
            times[-1] = 1.0
        trace = trace_of([1] * len(times), [1] * len(times), times)
        assert trace.demand(step_s).requests == pytest.approx(len(times))

    @pytest.mark.parametrize(
        ("times", "step_s", "message"),
        [
            ([0.0, 0.0], 10, "all requests arrive at once"),
            ([0.0], 10, "all requests arrive at once"),
            ([0.0, 1.0], 0, "step_s: 0 is out of range, expected above 0"),
            ([0.0, 1e8], 1, "step_s: cuts the trace into more than 1,000,000 steps, expected more than 100"),
        ],
    )
    def test_a_trace_or_step_without_a_rate_is_refused(self, times: list[float], step_s: float, message: str) -> None:
        with pytest.raises(RuleError, match=message):
            trace_of([1] * len(times), [1] * len(times), times).demand(step_s)


sizes = st.lists(st.integers(1, 3000), min_size=1, max_size=60)


class TestEdges:
    def test_the_grid_has_round_sizes_up_to_the_first_that_covers_all(self) -> None:
        assert round_sizes(130) == (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 125, 150)
        assert round_sizes(1) == (1,)

    @given(sizes, st.integers(1, 3))
    def test_the_chosen_edges_overstate_least_of_all_round_edges(self, tokens: list[int], most: int) -> None:
        cuts = Cuts.best(tokens, max_edges=most)
        grid = round_sizes(max(tokens))
        choices = (
            (*inner, grid[-1]) for count in range(most) for inner in combinations(grid[:-1], min(count, len(grid) - 1))
        )
        assert cuts.overstated == pytest.approx(min(overstated(tokens, edges) for edges in choices))
        assert cuts.overstated == pytest.approx(overstated(tokens, cuts.edges))
        assert len(cuts.edges) <= most
        assert list(cuts.edges) == sorted(set(cuts.edges))

    @given(sizes)
    def test_more_edges_never_overstate_more(self, tokens: list[int]) -> None:
        by_count = [Cuts.best(tokens, max_edges=most).overstated for most in range(1, 8)]
        assert all(more <= fewer + 1e-9 for fewer, more in pairwise(by_count))

    def test_a_single_size_needs_one_edge(self) -> None:
        assert Cuts.best([512] * 10, max_edges=10).edges == (600,)


class TestBucketsOfATrace:
    def test_edges_are_chosen_by_default_and_may_be_given(self) -> None:
        trace = trace_of([100, 900, 900, 5000], [10, 50, 50, 50])
        chosen = SizeBuckets.from_trace(trace)
        assert chosen.input_tokens == (100, 1000, 5000)
        assert chosen.output_tokens == (10, 50)
        given_edges = SizeBuckets.from_trace(trace, input_edges=(1000, 2000))
        assert given_edges.input_tokens == (1000, 2000)
        assert given_edges.share == ((0.25, 0.5), (0.0, 0.25))

    @given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)), min_size=1, max_size=50))
    def test_default_edges_are_at_most_ten_by_six_and_cover_all_sizes(self, requests: list[tuple[int, int]]) -> None:
        trace = trace_of([size[0] for size in requests], [size[1] for size in requests])
        buckets = SizeBuckets.from_trace(trace)
        assert len(buckets.input_tokens) <= 10
        assert len(buckets.output_tokens) <= 6
        assert trace.input_tokens.max() <= buckets.input_tokens[-1]
        assert trace.output_tokens.max() <= buckets.output_tokens[-1]


def overstated(tokens: list[int], edges: tuple[int, ...]) -> float:
    return sum(min(edge for edge in edges if edge >= size) for size in tokens) / sum(tokens)
