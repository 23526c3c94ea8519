"""Branch and price: column generation at each node, branching on units first and then on a block's counts.

If units and all mixed counts are whole, these counts are a mix: the demand rows are convex, so mixed counts serve if
their columns do (docs/explanation/planner/decomposition.md, section 5).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Any

import highspy
import numpy as np

from planner.solve.branch_and_price.blocks import Block, Coupling, Floats
from planner.solve.branch_and_price.column_generation import ColumnGeneration, Node, max_cost
from planner.solve.branch_and_price.master import Mixture
from planner.solve.highs import silent_highs

ROW_TOLERANCE = 1e-7  # of a coupling row, whose largest coefficient is 1 or, for packing, in GPUs
INTEGER_TOLERANCE = 1e-6  # a count within this distance of a whole number is whole
CLOSE = 1e-6  # relative: a bound within this distance equals the incumbent
GROWTH = 1.2  # of the columns, between two runs of the integer master
WINDOW = 0.01  # of the bound: counts with a higher reduced cost are in no mix this close to the bound
NEIGHBOURS = 400  # searches for them, over all blocks
NEIGHBOUR_NODES = 400  # of a search for counts next to the best

Sides = tuple[tuple[Floats, Floats], tuple[Floats, Floats]]


@dataclass
class Incumbent:
    """The best mix found so far: counts per block that serve, and the cheapest units for them."""

    blocks: Sequence[Block]
    coupling: Coupling
    value: float = inf
    counts: tuple[Floats, ...] = ()
    units: Floats | None = None

    def offer(self, counts: Sequence[Floats]) -> bool:
        """Keep counts that serve, if they are cheaper and every coupling row holds."""
        units = cheapest_units(self.coupling, self.use(counts))
        if units is None or (value := float(self.coupling.price @ units)) >= self.value:
            return False
        self.value, self.counts, self.units = value, tuple(counts), units
        return True

    def use(self, counts: Sequence[Floats]) -> Floats:
        of_block = zip(self.blocks, counts, strict=True)
        return sum(
            (self.coupling.replicas[:, b.options] @ n for b, n in of_block), np.zeros(len(self.coupling.at_most))
        )


def cheapest_units(coupling: Coupling, use: Floats) -> Floats | None:
    """The cheapest whole units for this use; None if none suffice."""
    supplies = len(coupling.price)
    slots = -np.diag(coupling.units[:supplies])
    units: Floats = np.ceil(use[:supplies] / slots - 1e-9)
    if (units > coupling.available).any():
        return None
    broken = use + coupling.units @ units > coupling.at_most + ROW_TOLERANCE
    if not broken.any():
        return units
    return _diluted(coupling, use, units) if (coupling.units[supplies:] < 0).any() else None


def _diluted(coupling: Coupling, use: Floats, units: Floats) -> Floats | None:
    """More units than needed, for limits that require some to outnumber others."""
    solver = silent_highs()
    for row, limit in enumerate(coupling.at_most):
        solver.addRow(-highspy.kHighsInf, float(limit - use[row]), 0, np.array([], np.int32), np.array([]))
    for f, price in enumerate(coupling.price):
        rows = np.flatnonzero(coupling.units[:, f]).astype(np.int32)
        most = float(coupling.available[f])
        solver.addCol(float(price), float(units[f]), most, len(rows), rows, coupling.units[rows, f])
        solver.changeColIntegrality(f, highspy.HighsVarType.kInteger)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    units_hired: Floats = np.rint(np.array(solver.getSolution().col_value))
    return units_hired


@dataclass(frozen=True, slots=True)
class Progress:
    bound: float
    is_complete: bool  # no mix beats the incumbent by more than the gap
    nodes: int
    rounds: int  # of pricing all blocks
    columns: int
    stock_price_usd_per_h: float = 0.0  # the highest price of a GPU above its hire, at the root's bound
    limit_prices: tuple[float, ...] = ()  # per limit, of one of its own units, there


@dataclass
class Search:
    """Best bound first.  The clock is read between rounds of pricing."""

    generation: ColumnGeneration
    incumbent: Incumbent
    relative_gap: float
    seconds_left: Callable[[], float]

    def __post_init__(self) -> None:
        """No column and no mix; the cutoff is the price of everything."""
        self._max_cost = max_cost(self.generation.coupling)
        self._columns_tried = 0

    def run(self) -> Progress:
        root = self.generation.root()
        heap = [(root.bound, 0, root)]
        left_aside, nodes, numbered = inf, 0, 0
        while heap and self.seconds_left() > 0 and heap[0][0] < self.cutoff():
            node, mixture = self.generation.solve(heappop(heap)[-1], cutoff=self.cutoff, seconds_left=self.seconds_left)
            nodes += 1
            root = node if nodes == 1 else root
            if mixture is not None:
                self._search_mixes(node)
            if mixture is None or node.bound >= self.cutoff():
                left_aside = min(left_aside, node.bound)
                continue
            children = self._children(node, mixture)
            if not children and node.bound < self.cutoff():
                node, is_new = self.generation.proven(node, mixture, seconds_left=self.seconds_left)
                children = [node] if is_new else []
            if not children:
                left_aside = min(left_aside, node.bound)
            for child in children:
                numbered += 1
                heappush(heap, (child.bound, numbered, child))
        bound = min(left_aside, heap[0][0] if heap else inf, self.incumbent.value)
        columns, prices = len(self.generation.master.columns), self.generation.scarcity(root)
        return Progress(bound, bound >= self.cutoff(), nodes, self.generation.rounds, columns, *prices)

    def cutoff(self) -> float:
        """Nodes with this bound or a higher one are pruned."""
        if self.incumbent.value < inf:
            return self.incumbent.value * (1 - max(self.relative_gap, CLOSE))
        return self._max_cost * (1 + CLOSE) + CLOSE

    def _children(self, node: Node, mixture: Mixture) -> list[Node]:
        """Two nodes on both sides of a fraction.  None without a fraction: the mixture is then a mix and is kept."""
        distance = np.abs(mixture.units - np.rint(mixture.units))
        if distance.max(initial=0.0) > INTEGER_TOLERANCE:
            f = int(np.argmax(distance * (self.generation.coupling.price + CLOSE)))
            sides = _parted(node.min_units, node.max_units, f, mixture.units[f])
            return [replace(node, min_units=least, max_units=most) for least, most in sides]
        fractions = [np.abs(counts - np.rint(counts)) for counts in mixture.counts]
        block = int(np.argmax([fraction.max(initial=0.0) for fraction in fractions]))
        if fractions[block].max(initial=0.0) > INTEGER_TOLERANCE:
            o = int(np.argmax(fractions[block]))
            least, most = self.generation.bounds(node, block)
            down, up = _parted(least, most, o, mixture.counts[block][o])
            return [replace(node, counts={**node.counts, block: side}) for side in (down, up)]
        self.incumbent.offer([np.rint(counts) for counts in mixture.counts])
        return []

    def _search_mixes(self, node: Node) -> None:
        """Run the integer master from time to time, over more columns than the relaxation needs."""
        master = self.generation.master
        if len(master.columns) < GROWTH * self._columns_tried:
            return
        is_first = not self._columns_tried
        self._solve_integer_master()
        if is_first and node.bound < self.cutoff():
            self._add_neighbours(node)
            self._solve_integer_master()
        self._columns_tried = len(master.columns)

    def _solve_integer_master(self) -> None:
        counts = self.generation.master.solve_integer(
            time_limit_s=self.seconds_left(), below=self.cutoff(), relative_gap=max(CLOSE, self.relative_gap / 4)
        )
        if counts is not None:
            self.incumbent.offer(counts)

    def _add_neighbours(self, node: Node) -> None:
        """Per block, the best counts with one replica of an option more or fewer than in its cheapest."""
        cost = np.maximum(0.0, node.prices @ self.generation.coupling.replicas)
        max_searches = max(2, NEIGHBOURS // len(self.generation.pricers))
        for position, pricer in enumerate(self.generation.pricers):
            own = cost[pricer.block.options]
            least, most = self.generation.bounds(node, position)
            inside = pricer.within(least, most)
            cheapest = inside[int(np.argmin(np.array(inside) @ own))]
            below = float(own @ cheapest) + WINDOW * node.bound
            for low, high in islice(_beside(cheapest, least, most), max_searches):
                if self.seconds_left() <= 0:
                    return
                pricer.cheapest(own, least=low, most=high, below=below, max_nodes=NEIGHBOUR_NODES)
            for counts in pricer.take_new():
                self.generation.master.add(position, counts)


def _parted(least: Floats, most: Floats, at: int, value: float) -> Sides:
    return (least, _with(most, at, np.floor(value))), (_with(least, at, np.floor(value) + 1), most)


def _with(counts: Floats, o: int | np.integer[Any], count: float) -> Floats:
    changed = counts.copy()
    changed[o] = count
    return changed


def _beside(counts: Floats, least: Floats, most: Floats) -> Iterator[tuple[Floats, Floats]]:
    for o in np.flatnonzero(counts > least):
        yield least, _with(most, o, counts[o] - 1)
    for o in np.flatnonzero(counts < most):
        yield _with(least, o, counts[o] + 1), most
