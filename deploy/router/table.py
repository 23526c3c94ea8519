"""The routing table: the plan's weights by size of request, and the slots of each deployment.

A table is immutable, replaced as a whole between two requests, and JSON on the wire.
"""

from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from fleet.sizes.histogram import Edges, SizeBuckets

WEIGHTS_TOLERANCE = 1e-6

RouteName = Annotated[str, Field(min_length=1, max_length=200)]
Weight = Annotated[float, Field(ge=0.0, le=1.0 + WEIGHTS_TOLERANCE)]
Cell = tuple[int, int]


class Route(Frozen):
    """One deployment."""

    replicas: int = Field(ge=0, le=10_000)
    max_in_flight: int = Field(ge=1, le=100_000, description="Requests at once that one replica takes.")


class CellWeights(Frozen):
    """The routes of one bucket; their weights sum to 1."""

    row: int = Field(ge=0, le=255)
    column: int = Field(ge=0, le=255)
    weights: dict[RouteName, Weight] = Field(min_length=1, max_length=100)


class RoutingTable(Frozen):
    """Weights by bucket.  A bucket that is not listed has those of the nearest listed one."""

    version: str = Field(min_length=1, max_length=100, description="Of the plan, for metrics and responses.")
    input_tokens: Edges
    output_tokens: Edges
    share: tuple[tuple[Annotated[float, Field(ge=0.0)], ...], ...] = Field(
        description="Of requests, by row and column, as the plan assumed."
    )
    routes: dict[RouteName, Route] = Field(min_length=1, max_length=100)
    cells: tuple[CellWeights, ...] = Field(min_length=1, max_length=65_536)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    @classmethod
    def of(
        cls,
        *,
        version: str,
        buckets: SizeBuckets,
        routes: Mapping[str, Route],
        weights: Mapping[Cell, Mapping[str, float]],
    ) -> Self:
        """Build a table from a plan's buckets and weights, without weights of 0."""
        return cls(
            version=version,
            input_tokens=buckets.input_tokens,
            output_tokens=buckets.output_tokens,
            share=buckets.share,
            routes=dict(routes),
            cells=tuple(
                CellWeights(row=row, column=column, weights={name: w for name, w in found.items() if w > 0.0})
                for (row, column), found in sorted(weights.items())
                if any(found.values())
            ),
        )

    def row_of(self, input_tokens: float) -> int:
        """Return the row of a prompt; a prompt beyond the last edge is in the last row."""
        return min(bisect_left(self.input_tokens, input_tokens), len(self.input_tokens) - 1)

    def column_of(self, output_tokens: float) -> int:
        return min(bisect_left(self.output_tokens, output_tokens), len(self.output_tokens) - 1)

    @cached_property
    def by_cell(self) -> Mapping[Cell, Mapping[str, float]]:
        listed = {(cell.row, cell.column): cell.weights for cell in self.cells}
        return {
            (row, column): listed.get((row, column)) or listed[min(listed, key=lambda at: _apart(at, (row, column)))]
            for row in range(len(self.input_tokens))
            for column in range(len(self.output_tokens))
        }

    def _violations(self) -> list[Violation]:
        rows, columns = len(self.input_tokens), len(self.output_tokens)
        violations: list[Violation] = []
        if len(self.share) != rows or any(len(row) != columns for row in self.share):
            violations.append((("share",), f"allowed: {rows} rows of {columns}, one per edge"))
        cells_so_far = set()
        for at, cell in enumerate(self.cells):
            if cell.row >= rows or cell.column >= columns:
                violations.append((("cells", at), f"allowed: rows below {rows} and columns below {columns}"))
            if (cell.row, cell.column) in cells_so_far:
                violations.append((("cells", at), "allowed: each bucket once"))
            cells_so_far.add((cell.row, cell.column))
            if unknown := sorted(cell.weights.keys() - self.routes.keys()):
                violations.append((("cells", at, "weights"), f"names {', '.join(unknown)}; allowed: names of routes"))
            if abs(sum(cell.weights.values()) - 1.0) > WEIGHTS_TOLERANCE:
                violations.append((("cells", at, "weights"), "allowed: a sum of 1"))
        return violations


def _apart(one: Cell, other: Cell) -> tuple[int, int, Cell]:
    """Order by row first, because the prompt size determines the deployment most."""
    return abs(one[0] - other[0]), abs(one[1] - other[1]), one
