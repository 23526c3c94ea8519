"""Which edges pass through what: the few that a window's slow places touch, out of all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Ints


@dataclass(frozen=True, slots=True)
class Passing:
    """Edges in the order of the place that one of their six ways names; `first` as in a sparse matrix."""

    order: tuple[Ints, ...]
    first: tuple[Ints, ...]

    @classmethod
    def of(cls, ways: NDArray[np.int32], *, nics: int, uplinks: int) -> "Passing":
        """Ways: source and target (NICs), then four of uplinks."""
        order = tuple(np.argsort(way, kind="stable") for way in ways)
        sizes = (nics, nics, uplinks, uplinks, uplinks, uplinks)
        first = tuple(
            np.searchsorted(way[by], np.arange(size + 1)) for way, by, size in zip(ways, order, sizes, strict=True)
        )
        return cls(order, first)

    def edges(self, nics: NDArray[np.bool_], uplinks: NDArray[np.bool_]) -> Ints:
        """All that pass through any of these places, each once."""
        found: list[Ints] = []
        for way, (order, first) in enumerate(zip(self.order, self.first, strict=True)):
            places = np.flatnonzero(nics if way < 2 else uplinks)
            found += [order[first[place] : first[place + 1]] for place in places]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
