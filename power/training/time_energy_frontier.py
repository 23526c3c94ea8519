"""The time-energy frontier of a training iteration, after Perseus (SOSP 2024, arXiv 2312.06902).

All computations start at their least energy.  Then each minimum cut of the critical graph gives the computations to
speed up together, so that the iteration ends earlier at the least energy, until some path is at full speed throughout.
Operating points count as the convex curves through them, so every step is exact and as long as possible: up to the next
breakpoint of a curve, or until another path becomes critical.  `power.training.plans` turns a point into real clocks.
Formulation: docs/explanation/power/training.md, section 2.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from power.arrays import Floats
from power.training.operating_points import Choice, effective_j, hull_of
from power.training.schedules import Iteration

SAME = 1e-9  # of the iteration's time, and of the steepest slope
MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A bend of the frontier: the least energy at a time, and the time of each computation there."""

    time_s: float
    energy_j: float
    times_s: Floats


@dataclass(frozen=True, slots=True)
class Frontier:
    """Bends from the fastest to where waiting alone is left to save; between two of them everything is a straight line.

    Later than `thriftiest` the whole takes more again, as all stages wait longer: worth it only where power is short,
    or where another pipeline keeps this one waiting anyway.
    """

    iteration: Iteration
    points: tuple[Point, ...]

    @property
    def fastest_s(self) -> float:
        return self.points[0].time_s

    @property
    def slowest_s(self) -> float:
        """Return the longest time on the frontier: every computation at its least effective energy."""
        return self.points[-1].time_s

    @property
    def min_energy(self) -> Point:
        return min(self.points, key=lambda point: point.energy_j)

    def at(self, time_s: float) -> Point:
        """Return the least energy within a time; beyond either end, that end."""
        after = bisect_left([point.time_s for point in self.points], time_s)
        if after in (0, len(self.points)):
            return self.points[min(after, len(self.points) - 1)]
        fast, slow = self.points[after - 1], self.points[after]
        share = (time_s - fast.time_s) / (slow.time_s - fast.time_s)
        return Point(
            time_s,
            fast.energy_j + share * (slow.energy_j - fast.energy_j),
            fast.times_s + share * (slow.times_s - fast.times_s),
        )


def frontier(iteration: Iteration) -> Frontier:
    """Return the whole frontier, exact for convex curves."""
    walk = _Walk(iteration)
    points = [walk.point()]
    for _ in range(MAX_STEPS):
        if not walk.step():
            break
        points.append(walk.point())
    return Frontier(iteration, tuple(_bends(points[::-1])))


class _Curve:
    """Effective energy of one computation by its time: linear between the choices of its hull."""

    __slots__ = ("joules", "seconds", "slopes")

    def __init__(self, hull: tuple[Choice, ...], blocked_w: float) -> None:
        self.seconds = [choice.time_s for choice in hull]
        self.joules = [effective_j(choice, blocked_w) for choice in hull]
        pairs = zip(range(len(hull) - 1), range(1, len(hull)), strict=True)
        self.slopes = [(self.joules[a] - self.joules[b]) / (self.seconds[b] - self.seconds[a]) for a, b in pairs]

    def around(self, time_s: float, same_s: float) -> tuple[float, float, float, float]:
        """Return (J/s saved when slower, J/s paid when faster, time of the next bend above, of the next below)."""
        at = bisect_left(self.seconds, time_s - same_s)
        if abs(self.seconds[min(at, len(self.seconds) - 1)] - time_s) <= same_s:
            cheaper = self.slopes[at] if at < len(self.slopes) else 0.0
            above = self.seconds[at + 1] if at < len(self.slopes) else inf
            return cheaper, self.slopes[at - 1] if at else inf, above, self.seconds[at - 1] if at else -inf
        return self.slopes[at - 1], self.slopes[at - 1], self.seconds[at], self.seconds[at - 1]


class _Walk:
    """The present times, and the network whose flow one step passes to the next."""

    def __init__(self, iteration: Iteration) -> None:
        self.iteration, count = iteration, len(iteration.computations)
        hulls = [hull_of(one.choices, blocked_w=iteration.blocked_w) for one in iteration.computations]
        self.curves = [_Curve(hull, iteration.blocked_w) for hull in hulls]
        self.times = [curve.seconds[-1] for curve in self.curves]
        self.effective_j = sum(curve.joules[-1] for curve in self.curves)
        self.whole_s = iteration.time_s(self.times)
        self.same_s = SAME * self.whole_s
        self.same_slope = SAME * max((slope for curve in self.curves for slope in curve.slopes), default=1.0)
        # Moments: start and end of each computation, then the start and the end of all.
        self.source, self.sink = 2 * count, 2 * count + 1
        arcs = [Arc(2 * at, 2 * at + 1) for at in range(count)]
        arcs += [Arc(2 * before + 1, 2 * after) for before, after in iteration.waits]
        arcs += [Arc(self.source, 2 * at) for at in range(count) if not iteration.before[at]]
        arcs += [Arc(2 * at + 1, self.sink) for at in range(count) if not iteration.after[at]]
        self.network = Network(2 * count + 2, arcs)
        self.bends: list[tuple[float, float]] = [(inf, -inf)] * count

    def point(self) -> Point:
        waiting_j = self.iteration.blocked_w * self.iteration.stages * self.whole_s
        return Point(self.whole_s, self.effective_j + waiting_j, np.array(self.times))

    def step(self) -> bool:
        """Shorten the iteration at the least energy; return False if it cannot be shortened."""
        early, late = self._moments()
        critical = [
            late[arc.head] - early[arc.tail] - (self.times[at] if at < len(self.times) else 0.0) <= self.same_s
            for at, arc in enumerate(self.network.arcs)
        ]
        self._bound(critical)
        side = self.network.cut(self.source, self.sink, usable=critical.__getitem__, tolerance=self.same_slope)
        if side is None:
            return False
        moves = self._moves(side, critical)
        return self._move(moves)

    def _moments(self) -> tuple[list[float], list[float]]:
        """Return the earliest and the latest time of every moment."""
        iteration, times = self.iteration, self.times
        early, late = [0.0] * self.network.moments, [self.whole_s] * self.network.moments
        for at in iteration.order:
            early[2 * at] = max((early[2 * before + 1] for before in iteration.before[at]), default=0.0)
            early[2 * at + 1] = early[2 * at] + times[at]
        for at in reversed(iteration.order):
            late[2 * at + 1] = min((late[2 * after] for after in iteration.after[at]), default=self.whole_s)
            late[2 * at] = late[2 * at + 1] - times[at]
        early[self.sink], late[self.source] = self.whole_s, 0.0
        return early, late

    def _bound(self, critical: list[bool]) -> None:
        for at, curve in enumerate(self.curves):
            arc = self.network.arcs[at]
            if critical[at]:
                arc.least, arc.most, above, below = curve.around(self.times[at], self.same_s)
                arc.flow = min(max(arc.flow, arc.least), arc.most)
                self.bends[at] = (above, below)

    def _moves(self, side: set[int], critical: list[bool]) -> dict[int, int]:
        """Return -1 for computations to speed up, 1 for those to slow down."""
        found: dict[int, int] = {}
        for at in range(len(self.times)):
            arc = self.network.arcs[at]
            if not critical[at]:
                continue
            if arc.tail in side and arc.head not in side:
                found[at] = -1
            elif arc.head in side and arc.tail not in side and arc.least > 0:
                found[at] = 1
        return found

    def _move(self, moves: dict[int, int]) -> bool:
        """Return the longest step without a breakpoint of a curve and without a new critical path."""
        step_s = min(
            self.times[at] - self.bends[at][1] if way < 0 else self.bends[at][0] - self.times[at]
            for at, way in moves.items()
        )
        for _ in range(len(self.times) + 2):
            moved = [time + step_s * moves.get(at, 0) for at, time in enumerate(self.times)]
            starts = self.iteration.starts_s(moved)
            whole_s = max(start + time for start, time in zip(starts, moved, strict=True))
            if whole_s <= self.whole_s - step_s + self.same_s:
                self.times, self.whole_s = moved, whole_s
                self.effective_j += step_s * self._rate(moves)
                return step_s > self.same_s
            path = self._longest(starts, moved, whole_s)
            length_s, gain = sum(self.times[at] for at in path), -sum(moves.get(at, 0) for at in path)
            if gain >= 1:
                return False  # rounding: the path counts as critical already
            step_s = max(0.0, (self.whole_s - length_s) / (1 - gain))
        return False

    def _rate(self, moves: dict[int, int]) -> float:
        """Return the J/s that the step costs: energy added by faster computations minus energy saved by slower ones."""
        arcs = self.network.arcs
        return sum(arcs[at].most if way < 0 else -arcs[at].least for at, way in moves.items())

    def _longest(self, starts: list[float], times: list[float], whole_s: float) -> list[int]:
        here = min(range(len(times)), key=lambda at: abs(starts[at] + times[at] - whole_s))
        path = [here]
        while self.iteration.before[here]:
            here = min(self.iteration.before[here], key=lambda at: abs(starts[at] + times[at] - starts[path[-1]]))
            path.append(here)
        return path


def _bends(points: list[Point]) -> list[Point]:
    """Drop the points on a straight line between others, in every time and in energy.

    Both are needed: the same computations may go on moving past a breakpoint, where only the energy changes slope.
    """
    kept: list[Point] = []
    for point in points:
        while len(kept) > 1 and _on_line(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return kept


def _on_line(first: Point, middle: Point, last: Point) -> bool:
    share = (middle.time_s - first.time_s) / (last.time_s - first.time_s)
    straight = first.times_s + share * (last.times_s - first.times_s)
    straight_j = first.energy_j + share * (last.energy_j - first.energy_j)
    same_j = abs(straight_j - middle.energy_j) <= SAME * abs(middle.energy_j)
    return same_j and bool(np.allclose(straight, middle.times_s, rtol=SAME, atol=0))


@dataclass(slots=True)
class Arc:
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
            predecessors, reached = self._search(source, sink, usable, tolerance)
            if not reached:
                return set(predecessors)
            path = self._path(predecessors, source, sink)
            residual = min(self._residual(at, forwards=forwards) for at, forwards in path)
            if residual == inf:
                return None
            for at, forwards in path:
                self.arcs[at].flow += residual if forwards else -residual

    def _search(
        self, source: int, sink: int, usable: Callable[[int], bool], tolerance: float
    ) -> tuple[dict[int, tuple[int, bool]], bool]:
        """Search breadth first, so that paths are short; return the predecessor of each moment."""
        predecessors, waiting = {source: (-1, True)}, deque([source])
        while waiting:
            here = waiting.popleft()
            for arcs, forwards in ((self.leaving[here], True), (self.entering[here], False)):
                for at in arcs:
                    there = self.arcs[at].head if forwards else self.arcs[at].tail
                    if there in predecessors or not usable(at) or self._residual(at, forwards=forwards) <= tolerance:
                        continue
                    predecessors[there] = (at, forwards)
                    if there == sink:
                        return predecessors, True
                    waiting.append(there)
        return predecessors, False

    def _residual(self, at: int, *, forwards: bool) -> float:
        arc = self.arcs[at]
        return arc.most - arc.flow if forwards else arc.flow - arc.least

    def _path(self, predecessors: dict[int, tuple[int, bool]], source: int, sink: int) -> list[tuple[int, bool]]:
        path, here = [], sink
        while here != source:
            at, forwards = predecessors[here]
            path.append((at, forwards))
            here = self.arcs[at].tail if forwards else self.arcs[at].head
        return path
