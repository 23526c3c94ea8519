"""Assignment of connections to cables by edge colouring: first between leaves and spines, then spines and cores.

A utilisation limit divides the free capacity of each cable into slots of one connection.  Between leaves a colour is
(slot, plane, rank of the spine in the plane), so a packet comes down in the plane in which it went up.  Between spines
a colour is (slot, core).  A connection without a colour in either step is tried on every route.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from faults.path_planning.clos import Clos, Hops, Routes, Trunk
from faults.path_planning.colouring import Colouring
from faults.path_planning.spine_rebalancing import Effort, SpineRebalancing

UP, DOWN = 0, 1
SLACK: Final = 1e-9  # of a connection's size: sums of shares are inexact

Path = tuple[int, ...]  # directed links: 2 x cable up, 2 x cable + 1 down
Colour = tuple[int, int, int]
End = tuple[int, int]  # route, leaf
_Spines = tuple[dict[tuple[int, Colour], int], dict[tuple[int, Colour], int]]  # up, down: by leaf and colour


@dataclass(frozen=True, slots=True)
class Part:
    flow: int
    index: int
    source: int
    target: int
    gb_per_s: float


class Assignment:
    """The placed connections and the free capacity of every directed link."""

    def __init__(self, clos: Clos, routes: Routes, effort: Effort | None = None) -> None:
        self.clos, self.routes, self._effort = clos, routes, effort or Effort()
        self.fair = False  # limits a leaf, per spine, to its share of the spine's onward capacity
        self.load = [0.0] * (2 * len(clos.wires))
        self.paths: dict[Part, Path] = {}

    def copy(self, *, fair: bool = False) -> "Assignment":
        """Return a copy for a trial, with or without fair shares; the copy shares the effort budget."""
        other = Assignment(self.clos, self.routes, self._effort)
        other.load, other.paths, other.fair = self.load.copy(), self.paths.copy(), fair or self.fair
        return other

    def put(self, part: Part, path: Path) -> None:
        self.paths[part] = path
        for link in path:
            self.load[link] += part.gb_per_s

    def take(self, part: Part) -> None:
        for link in self.paths.pop(part):
            self.load[link] -= part.gb_per_s

    def fits(self, parts: Sequence[Part], limit: float) -> bool:
        """Return, per flow, whether the leaves at both ends have capacity.  Links above the leaves are not checked."""
        ends: Counter[tuple[int, int, float, int]] = Counter()
        for part in parts:
            if part.source != part.target:
                ends[part.source, UP, part.gb_per_s, part.flow] += 1
                ends[part.target, DOWN, part.gb_per_s, part.flow] += 1
        return all(
            count <= sum(self._slots((leaf, spine), way, limit, size) for spine in self.clos.above.get(leaf, ()))
            for (leaf, way, size, _), count in ends.items()
        )

    def fit_together(self, parts: Sequence[Part], limit: float, *, fair: bool) -> bool:
        """Return whether the leaves at both ends have capacity for all; `fair` also counts the onward capacity of their
        spines.
        """
        by_size: dict[float, list[Part]] = defaultdict(list)
        for part in parts:
            if part.source != part.target:
                by_size[part.gb_per_s].append(part)
        for same in by_size.values():
            capacity = self._fair(same, limit) if fair else self._free_slots(same, limit)
            degree = _degree(same)
            if any(degree[end] > sum(slots.values()) for end, slots in capacity.items()):
                return False
        return True

    def take_flows(self, flows: Container[int]) -> None:
        for part in [part for part in self.paths if part.flow in flows]:
            self.take(part)

    def place(self, parts: Sequence[Part], limit: float) -> list[Part]:
        """Place connections within the utilisation limit; return those that do not fit."""
        left: list[Part] = []
        by_size: dict[float, list[Part]] = defaultdict(list)
        for part in parts:
            by_size[part.gb_per_s].append(part)
        for size in sorted(by_size, reverse=True):
            left += self._place_equal(by_size[size], limit)
        return left

    def _place_equal(self, parts: Sequence[Part], limit: float) -> list[Part]:
        left: list[Part] = []
        through: list[tuple[Part, int, int]] = []
        for part, spine_pair in self._spine_pairs(parts, limit):
            if spine_pair is None:
                left.append(part)
            elif spine_pair[0] == spine_pair[1]:
                self._put(part, ((part.source, spine_pair[0]), (part.target, spine_pair[0])))
            else:
                through.append((part, *spine_pair))
        for part, up, down, core in self._with_cores(through, limit):
            if core is None:
                left.append(part)
            else:
                self._put(part, ((part.source, up), (up, core), (down, core), (part.target, down)))
        return self._searched(left, limit)

    def _searched(self, parts: Sequence[Part], limit: float) -> list[Part]:
        """Try every route for each connection; a flow with one failed connection is skipped."""
        left: list[Part] = []
        lost: set[int] = set()
        for part in sorted(parts, key=lambda part: part.flow):
            if part.flow in lost or not self._search(part, limit):
                left.append(part)
                lost.add(part.flow)
        return left

    def _spine_pairs(self, parts: Sequence[Part], limit: float) -> Iterator[tuple[Part, tuple[int, int] | None]]:
        crossing = [part for part in parts if part.source != part.target]
        for part in parts:
            if part.source == part.target:
                self.put(part, ())
        if not crossing:
            return
        spines: _Spines = ({}, {})
        ups, downs = self._spine_slots(crossing, limit, spines)
        colouring = Colouring([(part.source, part.target) for part in crossing], ups, downs)
        colouring.run()
        self._rebalance_spines(colouring, crossing, spines, limit)
        for part, colour in zip(crossing, colouring.colour, strict=True):
            if colour is None:
                yield part, None
            else:
                yield part, (spines[UP][part.source, colour], spines[DOWN][part.target, colour])

    def _rebalance_spines(
        self, colouring: Colouring[Colour], crossing: Sequence[Part], spines: _Spines, limit: float
    ) -> None:
        """Where there is an alternative, keep the flows to cores through a spine within the capacity of its cables."""
        pod, size = self.clos.pod, crossing[0].gb_per_s
        onward = [pod[part.source] != pod[part.target] for part in crossing]
        places = {(side, spine) for side, of in enumerate(spines) for spine in of.values()}
        capacity = {(side, spine): len(self._core_slots(spine, side, limit, size)) for side, spine in places}
        SpineRebalancing(colouring, spines, onward, capacity, pod, effort=self._effort).run()

    def _spine_slots(
        self, crossing: Sequence[Part], limit: float, spines: _Spines
    ) -> tuple[Mapping[int, Sequence[Colour]], Mapping[int, Sequence[Colour]]]:
        clos = self.clos
        found: tuple[dict[int, Sequence[Colour]], dict[int, Sequence[Colour]]] = ({}, {})
        for (way, leaf), slots in (self._fair if self.fair else self._free_slots)(crossing, limit).items():
            colours: list[Colour] = []
            for spine, count in slots.items():
                for slot in range(count):
                    colour = slot, clos.plane[spine], clos.rank[spine]
                    colours.append(colour)
                    spines[way][leaf, colour] = spine
            found[way][leaf] = sorted(colours)
        return found

    def _free_slots(self, crossing: Sequence[Part], limit: float) -> dict[End, dict[int, int]]:
        size = crossing[0].gb_per_s
        return {
            (way, leaf): {
                spine: self._slots((leaf, spine), way, limit, size) for spine in self.clos.above.get(leaf, ())
            }
            for way, leaf in sorted(_degree(crossing))
        }

    def _fair(self, crossing: Sequence[Part], limit: float) -> dict[End, dict[int, int]]:
        """Divide a spine's onward capacity among its pod's leaves, in proportion to their traffic out of the pod."""
        pod, degree, onward = self.clos.pod, _degree(crossing), Counter[End]()
        for part in crossing:
            if pod[part.source] != pod[part.target]:
                onward.update(((UP, pod[part.source]), (DOWN, pod[part.target])))
        passes: dict[End, int] = {}
        fair = self._free_slots(crossing, limit)
        for (way, leaf), slots in fair.items():
            for spine in slots if (all_of := onward[way, pod[leaf]]) else ():
                if (way, spine) not in passes:
                    passes[way, spine] = len(self._core_slots(spine, way, limit, crossing[0].gb_per_s))
                slots[spine] = min(slots[spine], passes[way, spine] * degree[way, leaf] // all_of)
        return fair

    def _with_cores(
        self, crossing: Sequence[tuple[Part, int, int]], limit: float
    ) -> Iterator[tuple[Part, int, int, int | None]]:
        if not crossing:
            return
        size = crossing[0][0].gb_per_s
        ups = {up: self._core_slots(up, UP, limit, size) for _, up, _ in crossing}
        downs = {down: self._core_slots(down, DOWN, limit, size) for _, _, down in crossing}
        colouring = Colouring([(up, down) for _, up, down in crossing], ups, downs)
        colouring.run()
        for (part, up, down), colour in zip(crossing, colouring.colour, strict=True):
            yield part, up, down, None if colour is None else colour[1]

    def _core_slots(self, spine: int, way: int, limit: float, size: float) -> Sequence[tuple[int, int]]:
        return sorted(
            (slot, core)
            for core in self.clos.above.get(spine, ())
            for slot in range(self._slots((spine, core), way, limit, size))
        )

    def _slots(self, trunk: Trunk, way: int, limit: float, size: float) -> int:
        return sum(
            max(0, int((limit * self.clos.wires[cable].gb_per_s - self.load[2 * cable + way]) / size + SLACK))
            for cable in self.clos.trunks[trunk]
        )

    def _put(self, part: Part, hops: Hops) -> None:
        self.put(part, tuple(self._link(trunk, way) for trunk, way in directed(hops)))

    def _link(self, trunk: Trunk, way: int) -> int:
        cables = self.clos.trunks[trunk]
        return 2 * min(cables, key=lambda cable: self.load[2 * cable + way] / self.clos.wires[cable].gb_per_s) + way

    def _search(self, part: Part, limit: float) -> bool:
        """Put a connection on the least used of all routes, if that is within the limit."""
        best, path = limit * (1 + SLACK), None
        for hops in self.routes.ways(part.source, part.target):
            links = []
            worst = 0.0
            for trunk, way in directed(hops):
                link = self._link(trunk, way)
                worst = max(worst, (self.load[link] + part.gb_per_s) / self.clos.wires[link // 2].gb_per_s)
                if worst > best:
                    break
                links.append(link)
            else:
                best, path = worst, tuple(links)
        if path is not None:
            self.put(part, path)
        return path is not None


def _degree(parts: Iterable[Part]) -> Counter[End]:
    return Counter(end for part in parts for end in ((UP, part.source), (DOWN, part.target)))


def directed(hops: Hops) -> Iterator[tuple[Trunk, int]]:
    """Return the trunks of a route with their direction: the first half goes up."""
    for place, trunk in enumerate(hops):
        yield trunk, UP if place < len(hops) // 2 else DOWN


def connections(parts: Iterable[Part]) -> Counter[int]:
    return Counter(part.flow for part in parts)
