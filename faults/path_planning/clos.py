"""The fabric as arrays: switches, cables between tiers, live cables, pods and planes.

A pod is the leaves and spines that are connected without a core.  A plane is the spines and cores that are connected
without a leaf.  In a fat tree a packet that goes up in a plane comes down in the same plane.  Every cable c is two
directed links, 2 c up and 2 c + 1 down.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from faults.path_planning.job import Cable
from fleet.documents import RuleError, Violation
from fleet.topology import Tier, TopologyIndex

KeyT = TypeVar("KeyT")
Trunk = tuple[int, int]  # lower switch, upper switch
Hops = tuple[Trunk, ...]  # trunks up, then trunks down, each as (lower, upper)


@dataclass(frozen=True, slots=True)
class Wire:
    """One of the parallel cables from a switch to one above."""

    lower: int
    upper: int
    cable: int
    gb_per_s: float


@dataclass(frozen=True)
class Clos:
    """A switched fabric of up to three tiers; `dead` are the numbers of failed cables."""

    names: tuple[str, ...]
    tiers: tuple[Tier, ...]
    wires: tuple[Wire, ...]
    dead: frozenset[int] = field(default_factory=frozenset)

    @cached_property
    def number(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def every(self) -> dict[Trunk, list[int]]:
        """Return all cables of a trunk, including dead cables."""
        return _gathered(((wire.lower, wire.upper), index) for index, wire in enumerate(self.wires))

    @cached_property
    def trunks(self) -> dict[Trunk, list[int]]:
        """Return the live cables from a switch to one above."""
        return _gathered(
            ((wire.lower, wire.upper), index) for index, wire in enumerate(self.wires) if index not in self.dead
        )

    @cached_property
    def above(self) -> dict[int, list[int]]:
        """Return the switches directly above that a live cable reaches, in the order of the document."""
        return _gathered(self.trunks)

    @cached_property
    def pod(self) -> list[int]:
        """Return the pod of each leaf and spine as built; dead cables count."""
        return self._joined(Tier.LEAF)

    @cached_property
    def plane(self) -> list[int]:
        """Return the plane of each spine and core as built."""
        return self._joined(Tier.SPINE)

    @cached_property
    def rank(self) -> list[int]:
        """Return the position of a spine among the spines of its pod and plane, in the order of the document."""
        next_rank: dict[tuple[int, int], int] = defaultdict(int)
        ranks = [0] * len(self.names)
        for switch, tier in enumerate(self.tiers):
            if tier is Tier.SPINE:
                place = self.pod[switch], self.plane[switch]
                ranks[switch] = next_rank[place]
                next_rank[place] += 1
        return ranks

    def without(self, cables: Iterable[int]) -> "Clos":
        return Clos(self.names, self.tiers, self.wires, self.dead | frozenset(cables))

    def cables(self, link: Cable) -> tuple[int, ...]:
        """Return the cables of a link in a document; raise RuleError with the existing ones."""
        for name in (link.lower, link.upper):
            if name not in self.number:
                raise RuleError([((), f"there is no switch {name!r}")])
        found = self.every.get((self.number[link.lower], self.number[link.upper]), [])
        if not found:
            raise RuleError([((), f"{link.lower!r} has no uplink to {link.upper!r}")])
        if link.cable is None:
            return tuple(found)
        if link.cable >= len(found):
            raise RuleError([(("cable",), f"must be 0 to {len(found) - 1}, got {link.cable}")])
        return (found[link.cable],)

    def _joined(self, tier: Tier) -> list[int]:
        parent = list(range(len(self.names)))

        def top(switch: int) -> int:
            while parent[switch] != switch:
                parent[switch] = parent[parent[switch]]
                switch = parent[switch]
            return switch

        for lower, upper in self.every:
            if self.tiers[lower] is tier:
                one, other = sorted((top(lower), top(upper)))
                parent[other] = one
        return [top(switch) for switch in range(len(self.names))]


def clos_of(index: TopologyIndex, *, dead: Sequence[Cable] = ()) -> Clos:
    """Return the fabric of a topology without the dead links."""
    switches = tuple(index.switches.values())
    number = {switch.name: place for place, switch in enumerate(switches)}
    RuleError.raise_for(_unknown(index))
    wires = tuple(
        Wire(number[switch.name], number[upper], cable, switch.link_gb_per_s)
        for switch in switches
        if switch.link_gb_per_s is not None
        for upper in switch.uplinks
        for cable in range(switch.links_per_uplink)
    )
    clos = Clos(tuple(number), tuple(switch.tier for switch in switches), wires)
    gone: list[int] = []
    for place, link in enumerate(dead):
        try:
            gone += clos.cables(link)
        except RuleError as error:
            raise RuleError((("dead", place, *path), message) for path, message in error.violations) from None
    return clos.without(gone)


def _unknown(index: TopologyIndex) -> Iterator[Violation]:
    for switch in index.switches.values():
        if switch.uplinks and switch.link_gb_per_s is None:
            yield ("network", switch.name, "link_gb_per_s"), "is required to plan paths, expected more than 0 GB/s"


def _gathered(pairs: Iterable[tuple[KeyT, int]]) -> dict[KeyT, list[int]]:
    found: dict[KeyT, list[int]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


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
        if source == target:
            yield ()
            return
        for up, down in self.turns(source, target):
            if up == down:
                yield (source, up), (target, up)
            else:
                for core in self.cores(up, down):
                    yield (source, up), (up, core), (down, core), (target, down)
