"""Which edges pass through what: the few that a window's slow places touch, out of all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Ints
from faults.simulator.kernel import touched

Indices = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AffectedEdges:
    """Edges in the order of the place that one of their ways names, way by way; `begin` as in a sparse matrix."""

    order: Indices  # [way, edge]
    begin: Indices  # [way, place]
    found: Ints  # to work on
    marked: NDArray[np.bool_]

    @classmethod
    def of(cls, ways: Indices, *, nics: int, uplinks: int) -> "Passing":
        """Ways: source and target (NICs), then those of uplinks."""
        order = np.argsort(ways, axis=1, kind="stable").astype(np.int32)
        places = np.arange(max(nics, uplinks) + 1)
        begin = np.stack([np.searchsorted(way[by], places) for way, by in zip(ways, order, strict=True)])
        edges = ways.shape[1]
        return cls(order, begin.astype(np.int32), np.empty(edges, np.int64), np.zeros(edges, dtype=bool))

    def edges(self, send: NDArray[np.float32], take: NDArray[np.float32], path: NDArray[np.float32]) -> Ints:
        """All that pass through anything that is slow, each once; good until the next call."""
        return self.found[: touched(self.found, self.marked, self.order, self.begin, send, take, path)]
