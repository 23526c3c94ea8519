"""Request sizes: a histogram over input and output tokens, with buckets as in Mélange (arXiv 2404.14527).

Row i of `share` belongs to input_tokens[i], column j to output_tokens[j].  The edges are upper edges: bucket (i, j)
has the requests with input_tokens[i-1] < input <= input_tokens[i] and output_tokens[j-1] < output <= output_tokens[j].
The first bucket starts at 0, and the last also has the requests that are longer than its edge.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, inf
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from fleet.sizes.bucketing import MAX_INPUT_EDGES, MAX_OUTPUT_EDGES, Cuts
from fleet.traces import Trace

SHARE_TOLERANCE = 1e-6

Edges = Annotated[
    tuple[Annotated[int, Field(ge=1, le=100_000_000)], ...],
    Field(min_length=1, max_length=256),
]
Row = Annotated[tuple[Annotated[float, Field(ge=0, le=1 + SHARE_TOLERANCE)], ...], Field(max_length=256)]


@dataclass(frozen=True, slots=True)
class Bucket:
    """One cell: requests above `lower` up to and including `upper`, as (input tokens, output tokens)."""

    row: int
    column: int
    lower: tuple[int, int]
    upper: tuple[float, float]  # inf in the last row and column
    edge: tuple[int, int]  # the same without inf: the bucket's nominal size
    share: float

    @property
    def middle(self) -> tuple[float, float]:
        """The middle between the bucket's edges: the size for a mean instead of the worst case."""
        return (self.lower[0] + self.edge[0]) / 2, (self.lower[1] + self.edge[1]) / 2


class SizeBuckets(Frozen):
    """The share of requests in each bucket; the shares sum to 1."""

    input_tokens: Edges
    output_tokens: Edges
    share: Annotated[tuple[Row, ...], Field(max_length=256)]

    @model_validator(mode="after")
    def _is_a_histogram(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    @classmethod
    def from_requests(
        cls,
        *,
        input_tokens: Sequence[int] | npt.NDArray[np.int64],
        output_tokens: Sequence[int] | npt.NDArray[np.int64],
        input_edges: Sequence[int],
        output_edges: Sequence[int],
    ) -> Self:
        inputs, outputs = np.asarray(input_tokens), np.asarray(output_tokens)
        RuleError.raise_for(_unfit_for_a_histogram(inputs, outputs, input_edges, output_edges))
        rows = np.searchsorted(input_edges, inputs).clip(max=len(input_edges) - 1)
        columns = np.searchsorted(output_edges, outputs).clip(max=len(output_edges) - 1)
        counts = np.zeros((len(input_edges), len(output_edges)))
        np.add.at(counts, (rows, columns), 1)
        return cls(input_tokens=tuple(input_edges), output_tokens=tuple(output_edges), share=_fractions(counts))

    @classmethod
    def from_trace(
        cls,
        trace: Trace,
        *,
        input_edges: Sequence[int] | None = None,
        output_edges: Sequence[int] | None = None,
        max_input_edges: int = MAX_INPUT_EDGES,
        max_output_edges: int = MAX_OUTPUT_EDGES,
    ) -> Self:
        """The histogram of a trace; edges that are not given overstate its tokens the least (`bucketing`)."""
        return cls.from_requests(
            input_tokens=trace.input_tokens,
            output_tokens=trace.output_tokens,
            input_edges=input_edges or Cuts.best(trace.input_tokens, max_edges=max_input_edges).edges,
            output_edges=output_edges or Cuts.best(trace.output_tokens, max_edges=max_output_edges).edges,
        )

    def buckets(self) -> Iterator[Bucket]:
        """Every bucket, row by row, including empty ones."""
        inputs, outputs = _spans(self.input_tokens), _spans(self.output_tokens)
        for row, (input_lower, input_upper, input_edge) in enumerate(inputs):
            for column, (output_lower, output_upper, output_edge) in enumerate(outputs):
                yield Bucket(
                    row=row,
                    column=column,
                    lower=(input_lower, output_lower),
                    upper=(input_upper, output_upper),
                    edge=(input_edge, output_edge),
                    share=self.share[row][column],
                )

    def _violations(self) -> Iterator[Violation]:
        rows, columns = len(self.input_tokens), len(self.output_tokens)
        for field in ("input_tokens", "output_tokens"):
            yield from falling_edges(getattr(self, field), field=field)
        if len(self.share) != rows:
            yield ("share",), f"has {len(self.share)} rows, expected {rows}: one per edge of input_tokens"
        for position, row in enumerate(self.share):
            if len(row) != columns:
                yield ("share", position), f"has {len(row)} columns, expected {columns}: one per edge of output_tokens"
        total = fsum(fsum(row) for row in self.share)
        if abs(total - 1) > SHARE_TOLERANCE:
            yield ("share",), f"sums to {total:.9g}, expected 1 within {SHARE_TOLERANCE:g}"


def falling_edges(edges: Sequence[int], *, field: str) -> Iterator[Violation]:
    for position, (lower, upper) in enumerate(pairwise(edges), start=1):
        if upper <= lower:
            yield (field, position), f"edges must rise: {upper} after {lower}, expected at least {lower + 1}"


def _unfit_for_a_histogram(
    inputs: npt.NDArray[np.int64],
    outputs: npt.NDArray[np.int64],
    input_edges: Sequence[int],
    output_edges: Sequence[int],
) -> Iterator[Violation]:
    for field, edges in (("input_edges", input_edges), ("output_edges", output_edges)):
        if not edges or edges[0] < 1:
            yield (field,), "must be one or more whole numbers from 1 up"
        yield from falling_edges(edges, field=field)
    if len(inputs) != len(outputs):
        yield (), f"{len(inputs)} input sizes but {len(outputs)} output sizes, expected as many of each"
    elif not len(inputs):
        yield (), "a trace without requests has no sizes, expected at least one request"
    for field, sizes in (("input_tokens", inputs), ("output_tokens", outputs)):
        for position in np.flatnonzero(sizes < 0)[:1]:
            yield (field, int(position)), f"{sizes[position]} is out of range, expected 0 or more"


def _spans(edges: Sequence[int]) -> list[tuple[int, float, int]]:
    """(lower, upper, edge) of each bucket along one side."""
    uppers = (*edges[:-1], inf)
    return list(zip((0, *edges[:-1]), uppers, edges, strict=True))


def _fractions(weights: npt.NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in weights / weights.sum())
