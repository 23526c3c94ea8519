"""Edge colouring of a bipartite multigraph where a vertex may lack some colours: Koenig's proof, by Kempe chains.

Left and right vertices are the switches that flows leave and enter, an edge is a flow, a colour a slot of one cable: no
vertex sees a colour twice, so no slot is used twice.  Where every vertex has as many colours as edges, or more, all
edges get one (Koenig 1916).  A vertex with dead cables lacks colours; a chain that would end there is not flipped, and
what finds no chain stays uncoloured.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

ColourT = TypeVar("ColourT", bound=Hashable)

Edge = tuple[int, int]  # left vertex, right vertex


class Colouring(Generic[ColourT]):
    """Edges coloured so far; colours are tried in the order in which a vertex lists them."""

    def __init__(
        self, edges: Sequence[Edge], left: Mapping[int, Sequence[ColourT]], right: Mapping[int, Sequence[ColourT]]
    ) -> None:
        self.edges = edges
        self.colour: list[ColourT | None] = [None] * len(edges)
        self._slots = left, right
        self._has = tuple({vertex: frozenset(colours) for vertex, colours in side.items()} for side in self._slots)
        self._at: tuple[dict[tuple[int, ColourT], int], dict[tuple[int, ColourT], int]] = ({}, {})

    def run(self) -> None:
        """Colour what can be coloured, in order."""
        for edge in range(len(self.edges)):
            self._place(edge)

    def _free(self, side: int, vertex: int) -> list[ColourT]:
        at = self._at[side]
        return [colour for colour in self._slots[side].get(vertex, ()) if (vertex, colour) not in at]

    def _place(self, edge: int) -> None:
        left, right = self.edges[edge]
        here, there = self._free(0, left), self._free(1, right)
        free = set(there)
        for colour in here:
            if colour in free:
                self._set(edge, colour)
                return
        for colour in here:  # free on the left only; some other one is free on the right only
            if colour not in self._has[1].get(right, ()):
                continue
            for other in there:
                if other in self._has[0].get(left, ()) and self._flip(right, colour, other):
                    self._set(edge, colour)
                    return

    def _flip(self, vertex: int, colour: ColourT, other: ColourT) -> bool:
        """Swap two colours along the chain that starts at a right vertex, so that `colour` is free there."""
        chain: list[int] = []
        side, wanted, following = 1, colour, other
        while (edge := self._at[side].get((vertex, wanted))) is not None:
            chain.append(edge)
            side = 1 - side
            vertex = self.edges[edge][side]
            wanted, following = following, wanted
        if wanted not in self._has[side].get(vertex, ()):  # the last edge would take it here, where there is none
            return False
        for edge in chain:
            self._unset(edge)
        for place, edge in enumerate(chain):
            self._set(edge, other if place % 2 == 0 else colour)
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
