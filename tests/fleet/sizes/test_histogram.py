"""Histograms of request sizes: form, assignment of sizes to buckets, and counts of requests."""

from bisect import bisect_left
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError, parse_document, read_model, write_model
from fleet.errors import DocumentError
from fleet.sizes.histogram import SizeBuckets

EXAMPLE = "{input_tokens: [500, 2000], output_tokens: [250, 1000], share: [[0.4, 0.1], [0.3, 0.2]]}"


def read(text: str) -> SizeBuckets:
    return read_model(parse_document(text, name="sizes.yaml"), SizeBuckets)


edges = st.lists(st.integers(1, 100_000), min_size=1, max_size=8, unique=True).map(sorted)


@st.composite
def histograms(draw: st.DrawFn) -> SizeBuckets:
    input_edges, output_edges = draw(edges), draw(edges)
    cells = len(input_edges) * len(output_edges)
    weights = draw(st.lists(st.integers(0, 1000), min_size=cells, max_size=cells).filter(any))
    share = (np.array(weights) / sum(weights)).reshape(len(input_edges), len(output_edges))
    return SizeBuckets(input_tokens=tuple(input_edges), output_tokens=tuple(output_edges), share=rows(share))


def rows(share: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in share)


class TestForm:
    def test_rows_are_inputs_and_columns_outputs(self) -> None:
        shares = {bucket.edge: bucket.share for bucket in read(EXAMPLE).buckets()}
        assert shares == {(500, 250): 0.4, (500, 1000): 0.1, (2000, 250): 0.3, (2000, 1000): 0.2}

    def test_buckets_join_without_gap_and_the_last_is_open(self) -> None:
        spans = [(bucket.lower, bucket.upper) for bucket in read(EXAMPLE).buckets()]
        assert spans == [
            ((0, 0), (500, 250)),
            ((0, 250), (500, inf)),
            ((500, 0), (inf, 250)),
            ((500, 250), (inf, inf)),
        ]

    def test_the_middle_lies_between_the_edges(self) -> None:
        assert [bucket.middle for bucket in read(EXAMPLE).buckets()][3] == (1250.0, 625.0)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (EXAMPLE.replace("0.4", "0.3"), "line 1: share: sums to 0.9, expected 1 within 1e-06"),
            (
                EXAMPLE.replace("0.4", "-0.4"),
                "line 1: share[0][0]: input should be greater than or equal to 0, got -0.4",
            ),
            (EXAMPLE.replace("0.4", ".nan"), "line 1: share[0][0]: expected a finite number, got nan"),
            (
                EXAMPLE.replace("[500, 2000]", "[2000, 500]"),
                "line 1: input_tokens[1]: edges must rise: 500 after 2000, expected at least 2001",
            ),
            (
                EXAMPLE.replace("[500, 2000]", "[500, 1000, 2000]"),
                "line 1: share: has 2 rows, expected 3: one per edge of input_tokens",
            ),
            (
                EXAMPLE.replace("[0.3, 0.2]", "[0.5]"),
                "line 1: share[1]: has 1 columns, expected 2: one per edge of output_tokens",
            ),
            (
                EXAMPLE.replace("[500, 2000]", "[0, 2000]"),
                "line 1: input_tokens[0]: input should be greater than or equal to 1",
            ),
        ],
    )
    def test_an_invalid_histogram_is_refused(self, text: str, problem: str) -> None:
        with pytest.raises(DocumentError) as caught:
            read(text)
        assert str(caught.value.problems[0]).startswith(problem)
        assert len(caught.value.problems) == 1

    def test_a_histogram_without_edges_is_refused(self) -> None:
        with pytest.raises(DocumentError, match="input_tokens: is empty, expected at least one"):
            read("{input_tokens: [], output_tokens: [1], share: []}")

    def test_rounded_shares_are_accepted(self) -> None:
        read("{input_tokens: [1, 2, 3], output_tokens: [1], share: [[0.3333333], [0.3333333], [0.3333333]]}")

    @given(histograms())
    def test_writing_and_reading_gives_the_same(self, sizes: SizeBuckets) -> None:
        assert read(write_model(sizes)) == sizes
        assert read(sizes.model_dump_json()) == sizes


def bucket_of(sizes: SizeBuckets, input_tokens: int, output_tokens: int) -> tuple[int, int]:
    """The (row, column) of a request, by binary search."""

    def position(edges: tuple[int, ...], tokens: int) -> int:
        return min(bisect_left(edges, tokens), len(edges) - 1)

    return position(sizes.input_tokens, input_tokens), position(sizes.output_tokens, output_tokens)


class TestPlacing:
    @pytest.mark.parametrize(
        ("size", "bucket"),
        [((0, 0), (0, 0)), ((500, 250), (0, 0)), ((501, 250), (1, 0)), ((500, 251), (0, 1)), ((10**9, 10**9), (1, 1))],
    )
    def test_an_edge_belongs_to_the_bucket_below_it(self, size: tuple[int, int], bucket: tuple[int, int]) -> None:
        sizes = SizeBuckets.from_requests(
            input_tokens=[size[0]], output_tokens=[size[1]], input_edges=[500, 2000], output_edges=[250, 1000]
        )
        assert sizes.share[bucket[0]][bucket[1]] == 1

    @given(histograms(), st.integers(0, 200_000), st.integers(0, 200_000))
    def test_every_size_falls_into_exactly_the_bucket_that_spans_it(
        self, sizes: SizeBuckets, input_tokens: int, output_tokens: int
    ) -> None:
        def holds(lower: int, tokens: int, upper: float) -> bool:
            return lower < tokens <= upper or tokens == lower == 0

        spanning = [
            (bucket.row, bucket.column)
            for bucket in sizes.buckets()
            if holds(bucket.lower[0], input_tokens, bucket.upper[0])
            and holds(bucket.lower[1], output_tokens, bucket.upper[1])
        ]
        assert spanning == [bucket_of(sizes, input_tokens, output_tokens)]

    @given(histograms())
    def test_a_bucket_holds_its_own_edge(self, sizes: SizeBuckets) -> None:
        for bucket in sizes.buckets():
            assert bucket_of(sizes, *bucket.edge) == (bucket.row, bucket.column)


requests = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=200)


class TestFromRequests:
    @given(requests, edges, edges)
    def test_each_request_counts_once_in_its_bucket(
        self, trace: list[tuple[int, int]], input_edges: list[int], output_edges: list[int]
    ) -> None:
        inputs, outputs = [size[0] for size in trace], [size[1] for size in trace]
        sizes = SizeBuckets.from_requests(
            input_tokens=inputs, output_tokens=outputs, input_edges=input_edges, output_edges=output_edges
        )
        counted = np.zeros((len(input_edges), len(output_edges)))
        for size in trace:
            counted[bucket_of(sizes, *size)] += 1
        assert np.array(sizes.share) * len(trace) == pytest.approx(counted)

    @pytest.mark.parametrize(
        ("inputs", "outputs", "input_edges", "message"),
        [
            ([], [], [10], "a trace without requests has no sizes, expected at least one request"),
            ([1, 2], [1], [10], "2 input sizes but 1 output sizes, expected as many of each"),
            ([1, -2], [1, 1], [10], "input_tokens[1]: -2 is out of range, expected 0 or more"),
            ([1], [1], [10, 5], "input_edges[1]: edges must rise: 5 after 10, expected at least 11"),
            ([1], [1], [], "input_edges: must be one or more whole numbers from 1 up"),
            ([1], [1], [0, 10], "input_edges: must be one or more whole numbers from 1 up"),
        ],
    )
    def test_invalid_requests_or_edges_are_refused(
        self, inputs: list[int], outputs: list[int], input_edges: list[int], message: str
    ) -> None:
        with pytest.raises(RuleError) as caught:
            SizeBuckets.from_requests(
                input_tokens=inputs, output_tokens=outputs, input_edges=input_edges, output_edges=[10]
            )
        assert str(caught.value) == message
