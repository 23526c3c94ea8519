"""Rebalancing of degraded spines: two-colour chains are swapped until no spine has more flows to cores than capacity.

A colouring between leaves ignores the cables above the spines.  Where some of those are dead, a spine may have more
flows to cores than it can forward.  Swapping the two colours of a whole chain (Kempe) keeps a proper colouring, and
exchanges flows to cores for flows that turn round at the spine, or for none.  The total excess never rises: the chain
that reduces it most is swapped, or else, a limited number of times, a random one (seeded) that keeps it equal.  Split
flows cause many colourings, so one effort budget limits the visited chain edges of all of them together.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic

from faults.path_planning.colouring import Chain, Colouring, ColourT

Place = tuple[int, int]  # side (0: the way up, 1: down), spine
LEVEL: Final = 24  # total swaps without improvement
EDGES: Final = 500_000  # visited chain edges of a whole plan: one or two seconds


class Effort:
    """The remaining effort budget, shared by all colourings."""

    def __init__(self, edges: int = EDGES) -> None:
        self.edges = edges


class SpineRebalancing(Generic[ColourT]):
    """One colouring, with the spine of each colour of a leaf."""

    def __init__(
        self,
        colouring: Colouring[ColourT],
        spines: tuple[Mapping[tuple[int, ColourT], int], Mapping[tuple[int, ColourT], int]],
        onward: Sequence[bool],
        capacity: Mapping[Place, int],
        pod: Mapping[int, int] | Sequence[int],
        *,
        effort: Effort | None = None,
    ) -> None:
        self._of, self._spines, self._onward, self._capacity, self._pod = colouring, spines, onward, capacity, pod
        self._effort = effort or Effort()
        self._load: Counter[Place] = Counter()
        self._through: dict[Place, set[int]] = defaultdict(set)
        for edge in range(len(colouring.edges)):
            self._count(edge, 1)

    def run(self) -> None:
        """Swap until no spine has avoidable excess or no chain helps."""
        rng, level = random.Random(0), LEVEL
        excess, least = sum(self._excess(place, 0) for place in self._load), self._least()
        while excess > least and self._effort.edges > 0:
            over = [place for place, load in self._load.items() if load > self._capacity[place]]
            best, change = self._best(over, rng)
            if best is None or change > 0 or (change == 0 and not level):
                return
            level -= change == 0
            excess += change
            self._swap(best)

    def _least(self) -> int:
        """Return the unavoidable excess: the traffic that leaves a pod must leave through one of its spines."""
        load, capacity = Counter[Place](), Counter[Place]()
        for (side, spine), count in self._load.items():
            load[side, self._pod[spine]] += count
        for (side, spine), count in self._capacity.items():
            capacity[side, self._pod[spine]] += count
        return sum(max(0, count - capacity[of]) for of, count in load.items())

    def _best(self, over: Sequence[Place], rng: random.Random) -> tuple[Chain[ColourT] | None, int]:
        """Return the chain, with a flow to a core through one of these spines, that reduces the excess most."""
        best, least, alike = None, 1, 0
        for chain in self._chains(over):
            self._effort.edges -= len(chain.edges)
            change = self._change(chain)
            if change > least:
                continue
            alike = 1 if change < least else alike + 1
            if rng.random() * alike < 1.0:
                best, least = chain, change
        return best, least

    def _chains(self, over: Sequence[Place]) -> Iterator[Chain[ColourT]]:
        for place in over:
            for edge in sorted(self._through[place]):
                yield from self._of.chains(edge)

    def _change(self, chain: Chain[ColourT]) -> int:
        moved: Counter[Place] = Counter()
        for edge in chain.edges:
            if self._onward[edge]:
                colour = self._of.colour[edge]
                moved.update(self._places(edge, chain.other(colour)))
                moved.subtract(self._places(edge, colour))
        return sum(self._excess(place, by) - self._excess(place, 0) for place, by in moved.items() if by)

    def _excess(self, place: Place, by: int) -> int:
        return max(0, self._load[place] + by - self._capacity[place])

    def _places(self, edge: int, colour: ColourT | None) -> Iterator[Place]:
        if colour is not None:
            for side, vertex in enumerate(self._of.edges[edge]):
                yield side, self._spines[side][vertex, colour]

    def _swap(self, chain: Chain[ColourT]) -> None:
        for edge in chain.edges:
            self._count(edge, -1)
        self._of.swap(chain)
        for edge in chain.edges:
            self._count(edge, 1)

    def _count(self, edge: int, by: int) -> None:
        if self._onward[edge]:
            for place in self._places(edge, self._of.colour[edge]):
                self._load[place] += by
                (self._through[place].add if by > 0 else self._through[place].discard)(edge)
