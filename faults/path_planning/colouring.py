"""Edge colouring of a bipartite multigraph where a vertex may lack some colours: Koenig's proof, by Kempe chains.

Left and right vertices are the switches that flows leave and enter, an edge is a flow, and a colour is a slot of one
cable.  No vertex has a colour twice, so no slot is used twice.  Where every vertex has at least as many colours as
edges, every edge gets a colour (Koenig 1916).  A vertex with dead cables lacks colours; a chain that would end at a
missing colour is not flipped, and an edge without a usable chain stays uncoloured.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

ColourT = TypeVar("ColourT", bound=Hashable)

Edge = tuple[int, int]  # left vertex, right vertex
FREED: Final = 32  # flipped chains for one edge without a colour, before it is given up


@dataclass(frozen=True, slots=True)
class Chain(Generic[ColourT]):
    """A connected chain of edges in two alternating colours."""

    edges: tuple[int, ...]
    colours: tuple[ColourT, ColourT]

    def other(self, colour: ColourT | None) -> ColourT:
        return self.colours[1] if colour == self.colours[0] else self.colours[0]


class Colouring(Generic[ColourT]):
    """The coloured edges; colours are tried in the order in which a vertex lists them."""

    def __init__(
        self, edges: Sequence[Edge], left: Mapping[int, Sequence[ColourT]], right: Mapping[int, Sequence[ColourT]]
    ) -> None:
        self.edges = edges
        self.colour: list[ColourT | None] = [None] * len(edges)
        self._slots = left, right
        self._has = tuple({vertex: frozenset(colours) for vertex, colours in side.items()} for side in self._slots)
        self._at: tuple[dict[tuple[int, ColourT], int], dict[tuple[int, ColourT], int]] = ({}, {})

    def run(self) -> None:
        """Colour the edges in order, as far as possible."""
        for edge in range(len(self.edges)):
            self._place(edge)

    def chains(self, edge: int) -> Iterator[Chain[ColourT]]:
        """Iterate over all chains through this edge that can be swapped."""
        colour = self.colour[edge]
        if colour is None:
            return
        left, right = self.edges[edge]
        for other in self._slots[0].get(left, ()):
            if other == colour or other not in self._has[1].get(right, ()):
                continue
            there = self._walked(1, right, other, colour, home=edge)
            if there is None:
                continue
            back = () if there and there[-1] == edge else self._walked(0, left, other, colour)
            if back is not None:
                yield Chain((edge, *(each for each in there if each != edge), *back), (colour, other))

    def _walked(
        self, side: int, vertex: int, wanted: ColourT, following: ColourT, *, home: int | None = None
    ) -> tuple[int, ...] | None:
        """Return the edges of two alternating colours from a vertex, up to `home` for a circle.

        None where the last edge would take a colour that the vertex lacks.
        """
        found: list[int] = []
        while (after := self._at[side].get((vertex, wanted))) is not None:
            found.append(after)
            if after == home:
                return tuple(found)
            side = 1 - side
            vertex = self.edges[after][side]
            wanted, following = following, wanted
        return tuple(found) if wanted in self._has[side].get(vertex, ()) else None

    def swap(self, chain: Chain[ColourT]) -> None:
        after = [(edge, chain.other(self.colour[edge])) for edge in chain.edges]
        for edge in chain.edges:
            self._unset(edge)
        for edge, colour in after:
            self._set(edge, colour)

    def _free(self, side: int, vertex: int) -> list[ColourT]:
        at = self._at[side]
        return [colour for colour in self._slots[side].get(vertex, ()) if (vertex, colour) not in at]

    def _place(self, edge: int) -> None:
        if not self._coloured(edge):
            any(self._coloured(edge) for _ in islice(self._freed(edge), FREED))

    def _freed(self, edge: int) -> Iterator[None]:
        """Free another colour at either end, because the chains of the free colours end at a missing colour."""
        for side, vertex in enumerate(self.edges[edge]):
            for free in self._free(side, vertex):
                other = free
                for colour in self._slots[side][vertex]:
                    if (vertex, colour) in self._at[side] and self._flip(side, vertex, colour, other):
                        other = colour
                        yield

    def _coloured(self, edge: int) -> bool:
        """Return whether the edge could have a colour after at most one flip."""
        left, right = self.edges[edge]
        here, there = self._free(0, left), self._free(1, right)
        free = set(there)
        for colour in here:
            if colour in free:
                self._set(edge, colour)
                return True
        for colour in here:  # free only on the left; another colour is free only on the right
            if colour not in self._has[1].get(right, ()):
                continue
            for other in there:
                if other in self._has[0].get(left, ()) and self._flip(1, right, colour, other):
                    self._set(edge, colour)
                    return True
        return False

    def _flip(self, side: int, vertex: int, colour: ColourT, other: ColourT) -> bool:
        """Make `colour` free at a vertex: swap two colours along the chain that starts there, where `other` is free."""
        chain = self._walked(side, vertex, colour, other)
        if chain is None:
            return False
        self.swap(Chain(chain, (colour, other)))
        return True

    def _set(self, edge: int, colour: ColourT) -> None:
        left, right = self.edges[edge]
        self._at[0][left, colour] = self._at[1][right, colour] = edge
        self.colour[edge] = colour

    def _unset(self, edge: int) -> None:
        left, right = self.edges[edge]
        colour = self.colour[edge]
        if colour is not None:
            del self._at[0][left, colour], self._at[1][right, colour]
            self.colour[edge] = None
