"""Routes through the fabric: up to the lowest tier that two leaves share, and down again, over live cables."""

from collections.abc import Iterator
from functools import cached_property

from faults.path_planning.clos import Clos, Trunk

Hops = tuple[Trunk, ...]  # trunks up, then trunks down, each as (lower, upper)


class Routes:
    """The middle of each route: one spine, or spine, core, spine; computed once per pair."""

    def __init__(self, clos: Clos) -> None:
        self.clos = clos
        self._turns: dict[Trunk, tuple[tuple[int, int], ...]] = {}
        self._cores: dict[Trunk, tuple[int, ...]] = {}

    @cached_property
    def _above(self) -> dict[int, frozenset[int]]:
        return {switch: frozenset(uppers) for switch, uppers in self.clos.above.items()}

    def cores(self, one: int, other: int) -> tuple[int, ...]:
        """Return the cores that both spines reach."""
        found = self._cores.get((one, other))
        if found is None:
            reached = self._above.get(other, frozenset())
            found = tuple(core for core in self.clos.above.get(one, ()) if core in reached)
            self._cores[one, other] = found
        return found

    def turns(self, source: int, target: int) -> tuple[tuple[int, int], ...]:
        """Return pairs of the upward and the downward spine of a route; the same spine where no core is used."""
        found = self._turns.get((source, target))
        if found is None:
            found = tuple(self._found(source, target))
            self._turns[source, target] = found
        return found

    def _found(self, source: int, target: int) -> Iterator[tuple[int, int]]:
        above = self.clos.above
        common = [spine for spine in above.get(source, ()) if spine in self._above.get(target, ())]
        if common:
            yield from ((spine, spine) for spine in common)
            return
        for up in above.get(source, ()):
            yield from ((up, down) for down in above.get(target, ()) if self.cores(up, down))

    def ways(self, source: int, target: int) -> Iterator[Hops]:
        """Iterate over every route between two leaves, as trunks."""
        if source == target:
            yield ()
            return
        for up, down in self.turns(source, target):
            if up == down:
                yield (source, up), (target, up)
            else:
                for core in self.cores(up, down):
                    yield (source, up), (up, core), (down, core), (target, down)
