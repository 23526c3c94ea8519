"""The edges whose path has a slow component in a window: few out of all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Ints
from faults.simulator.kernel import touched

Indices = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AffectedEdges:
    """Edges sorted by the component of each path position; `begin` as in a sparse matrix."""

    order: Indices  # [path position, edge]
    begin: Indices  # [path position, component]
    found: Ints  # scratch
    marked: NDArray[np.bool_]

    @classmethod
    def of(cls, ways: Indices, *, nics: int, uplinks: int) -> "AffectedEdges":
        """Sort the edges.  Path positions: source and target (NICs), then those of uplinks."""
        order = np.argsort(ways, axis=1, kind="stable").astype(np.int32)
        places = np.arange(max(nics, uplinks) + 1)
        begin = np.stack([np.searchsorted(way[by], places) for way, by in zip(ways, order, strict=True)])
        edges = ways.shape[1]
        return cls(order, begin.astype(np.int32), np.empty(edges, np.int64), np.zeros(edges, dtype=bool))

    def edges(self, send: NDArray[np.float32], take: NDArray[np.float32], path: NDArray[np.float32]) -> Ints:
        """Return all edges with a slow component, each once; valid until the next call."""
        return self.found[: touched(self.found, self.marked, self.order, self.begin, send, take, path)]
