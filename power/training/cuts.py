"""Minimum cuts of the critical part of an iteration: the computations to speed up together at the least energy.

Phillips and Dessouky (1977): the flow of a critical arc is between what its computation saves per second when slowed
down and what it costs when sped up; the maximum flow ends at a cut.  Computations that cross it forwards speed up,
those that cross it backwards may slow down, all by the same time.  A step of the frontier leaves the flow within the
new bounds, so that the next step starts from it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class Arc:
    """An arc between two moments, with the bounds of its flow."""

    tail: int
    head: int
    flow: float = 0.0
    least: float = 0.0
    most: float = inf


@dataclass(slots=True)
class Network:
    """Moments and arcs; the arcs of `usable` carry flow."""

    moments: int
    arcs: Sequence[Arc]
    leaving: list[list[int]] = field(init=False)
    entering: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.leaving, self.entering = [[] for _ in range(self.moments)], [[] for _ in range(self.moments)]
        for at, arc in enumerate(self.arcs):
            self.leaving[arc.tail].append(at)
            self.entering[arc.head].append(at)

    def cut(self, source: int, sink: int, *, usable: Callable[[int], bool], tolerance: float) -> set[int] | None:
        """Return the source's side of a minimum cut; None if no flow suffices, so that nothing can end earlier."""
        while True:
            came_by, reached = self._search(source, sink, usable, tolerance)
            if not reached:
                return set(came_by)
            path = self._path(came_by, source, sink)
            room = min(self._room(at, forwards=forwards) for at, forwards in path)
            if room == inf:
                return None
            for at, forwards in path:
                self.arcs[at].flow += room if forwards else -room

    def _search(
        self, source: int, sink: int, usable: Callable[[int], bool], tolerance: float
    ) -> tuple[dict[int, tuple[int, bool]], bool]:
        """Search breadth first, so that paths are short; return the predecessor of each moment."""
        came_by, waiting = {source: (-1, True)}, deque([source])
        while waiting:
            here = waiting.popleft()
            for arcs, forwards in ((self.leaving[here], True), (self.entering[here], False)):
                for at in arcs:
                    there = self.arcs[at].head if forwards else self.arcs[at].tail
                    if there in came_by or not usable(at) or self._room(at, forwards=forwards) <= tolerance:
                        continue
                    came_by[there] = (at, forwards)
                    if there == sink:
                        return came_by, True
                    waiting.append(there)
        return came_by, False

    def _room(self, at: int, *, forwards: bool) -> float:
        arc = self.arcs[at]
        return arc.most - arc.flow if forwards else arc.flow - arc.least

    def _path(self, came_by: dict[int, tuple[int, bool]], source: int, sink: int) -> list[tuple[int, bool]]:
        path, here = [], sink
        while here != source:
            at, forwards = came_by[here]
            path.append((at, forwards))
            here = self.arcs[at].tail if forwards else self.arcs[at].head
        return path
