"""Column generation: prices of the coupling rows, each block's best counts at them, and the bound.

At any prices `w >= 0` of the coupling rows the Lagrangian value `L(w)` is a proven bound
(docs/explanation/planner/decomposition.md, section 4).  The next prices lie between the master's and the best so far,
which stabilises them (Wentges, Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming, 1997).

The counts that serve a block do not depend on the prices, so each pricing helps later ones: it leaves cover rows, which
cut off counts that cannot serve, and counts that can (section 2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from planner.solve.branch_and_price.blocks import Block, Coupling, Floats
from planner.solve.branch_and_price.covering import Cover, cheapest_cover
from planner.solve.branch_and_price.feasibility import FeasibilityTest
from planner.solve.branch_and_price.master import Master, Mixture

MAX_ROWS = 200  # cover rows kept
ACTIVE_ROWS = 20  # rows at the start of a search: the last active ones, because prices change little
MAX_NODES = 60_000  # of one search; open nodes beyond only weaken its bound
VIOLATED = 1e-7  # of a row; a smaller violation is rounding
PERSISTENCE = 60  # searches with a result that does not serve, before only the bound is returned
SMOOTHING = 0.5  # the share of the best prices in the next ones
CONVERGED = 3e-7  # relative: the relaxed master's value equals the bound
CLOSE_IN_PRECISIONS = 5.0  # the same if a gap is allowed
MIN_PRECISION = 1e-9  # of pricing, relative
HOLDS = 1e-7  # of a coupling row; a smaller violation is rounding


FIRST_PENALTY, PENALTY_STEP, MAX_PENALTY = 5.0, 10.0, 500.0  # in the dearest unit's price


@dataclass(frozen=True)
class Node:
    """A subset of all mixes: bounds on units and counts, with the best proven bound and its prices."""

    bound: float
    prices: Floats
    min_units: Floats
    max_units: Floats
    counts: Mapping[int, tuple[Floats, Floats]] = field(default_factory=dict)  # block -> least, most; absent: all


class ColumnGeneration:
    def __init__(self, blocks: Sequence[Block], coupling: Coupling, *, precision: float) -> None:
        """`precision` is relative: smaller gains are ignored."""
        self.blocks, self.coupling = blocks, coupling
        self.pricers = [Pricer(block, precision) for block in blocks]
        self.rounds = 0
        self._close = max(CONVERGED, CLOSE_IN_PRECISIONS * precision)
        self._unit_price = float(coupling.price.max(initial=0.0)) or 1.0
        self._penalty = FIRST_PENALTY * self._unit_price
        self.master = Master(coupling, blocks, penalty=self._penalty)

    def root(self) -> Node:
        """The whole problem, starting from the prices of the supplies, as if each block were the only one."""
        supplies = len(self.coupling.price)
        prices = np.zeros(len(self.coupling.at_most))
        prices[:supplies] = self.coupling.price / -np.diag(self.coupling.units[:supplies])
        return Node(0.0, prices, np.zeros(supplies), self.coupling.available)

    def scarcity(self, node: Node) -> tuple[float, tuple[float, ...]]:
        """The highest price of a GPU above its hire, and the price of each limit in its own unit."""
        supplies = len(self.coupling.price)
        above = node.prices[:supplies] - self.coupling.price / -np.diag(self.coupling.units[:supplies])
        limits = node.prices[supplies:] / self.coupling.scale[supplies:]
        return max(0.0, float(above.max(initial=0.0))), tuple(map(float, limits))

    def solve(
        self, node: Node, *, cutoff: Callable[[], float], seconds_left: Callable[[], float]
    ) -> tuple[Node, Mixture | None]:
        """The node with its best bound, and the mixture if the relaxation is solved to its end.

        The mixture is missing if the bound reaches the cutoff or time runs out first.  If no penalty makes the coupling
        rows hold and infeasibility is not proven, the search branches on the mixture with the least violation.
        """
        smoothing = SMOOTHING if self.rounds == 0 else 0.0  # with good columns the master's prices are good
        if not self._has_columns(node):
            node = self._priced(node, node.prices, seconds_left)
        while node.bound < cutoff() and seconds_left() > 0:
            self.master.restrict(node.min_units, node.max_units, self._open(node))
            mixture = self.master.relaxed()
            known = len(self.master.columns)
            for weight in (smoothing, 0.0) if smoothing else (0.0,):
                if mixture.value - node.bound > self._close * abs(mixture.value) and len(self.master.columns) == known:
                    prices = weight * node.prices + (1 - weight) * mixture.prices
                    node = self._priced(node, prices, seconds_left)
            if len(self.master.columns) > known or seconds_left() <= 0:
                continue
            if mixture.missing <= HOLDS or self._penalty >= MAX_PENALTY * self._unit_price:
                return node, mixture
            self._penalty *= PENALTY_STEP
            self.master.set_penalty(self._penalty)
        return node, None

    def proven(self, node: Node, mixture: Mixture, *, seconds_left: Callable[[], float]) -> tuple[Node, bool]:
        """The node with the bound of exact pricing at the mixture's prices, and whether that found new counts.

        A gain that is small for a block can be large for the whole: where stock is short, the prices of a block's
        counts exceed what the mix costs.
        """
        known = len(self.master.columns)
        node = self._priced(node, mixture.prices, seconds_left, precision=MIN_PRECISION)
        return node, len(self.master.columns) > known

    def _has_columns(self, node: Node) -> bool:
        """Whether the master knows counts inside the node's bounds for every block."""
        inside = {
            column.block for column, is_open in zip(self.master.columns, self._open(node), strict=True) if is_open
        }
        return len(inside) == len(self.blocks)

    def _priced(
        self, node: Node, prices: Floats, seconds_left: Callable[[], float], *, precision: float | None = None
    ) -> Node:
        """Price every block and keep the better bound; if time runs out, the known bound."""
        self.rounds += 1
        prices = self._without_free_units(prices)
        coupling = self.coupling
        unit_cost = coupling.price + prices @ coupling.units
        units = np.where(unit_cost < 0, node.max_units, node.min_units)
        bound = float(-prices @ coupling.at_most + unit_cost[units > 0] @ units[units > 0])
        cost = np.maximum(0.0, prices @ coupling.replicas)
        for position, pricer in enumerate(self.pricers):
            if seconds_left() <= 0:
                return node
            least, most = self.bounds(node, position)
            own = cost[pricer.block.options]
            bound += pricer.cheapest(own, least=least, most=most, precision=precision).bound
            for counts in pricer.take_new():
                self.master.add(position, counts)
        return replace(node, bound=bound, prices=prices) if bound > node.bound else node

    def bounds(self, node: Node, block: int) -> tuple[Floats, Floats]:
        most = self.blocks[block].most
        return node.counts.get(block) or (np.zeros(len(most)), most)

    def _open(self, node: Node) -> list[bool]:
        def is_open(block: int, counts: Floats) -> bool:
            least, most = self.bounds(node, block)
            return bool((counts >= least).all() and (counts <= most).all())

        return [
            column.block not in node.counts or is_open(column.block, column.counts) for column in self.master.columns
        ]

    def _without_free_units(self, prices: Floats) -> Floats:
        """Lower the GPU prices so that no unlimited supply has a negative reduced price."""
        coupling = self.coupling
        unit_cost = coupling.price + prices @ coupling.units
        prices = prices.copy()
        for f in np.flatnonzero((unit_cost < 0) & np.isinf(coupling.available)):
            prices[f] = max(0.0, prices[f] + unit_cost[f] / -coupling.units[f, f])
        unit_cost = coupling.price + prices @ coupling.units
        if ((unit_cost < -1e-9) & np.isinf(coupling.available)).any():
            return self.root().prices
        return prices


def max_cost(coupling: Coupling) -> float:
    """The price of everything that can be hired; infinite with an unlimited supply."""
    priced = coupling.price > 0
    return float(coupling.price[priced] @ coupling.available[priced]) if priced.any() else 0.0


@dataclass
class Pricer:
    block: Block
    precision: float  # relative: smaller gains over the best known are ignored
    rows: list[Floats] = field(default_factory=list)
    known: dict[bytes, Floats] = field(default_factory=dict)  # counts that serve

    def __post_init__(self) -> None:
        """The minimum of replicas of each load is a cover row that always stays."""
        self._service = FeasibilityTest(self.block)
        self._new: list[Floats] = []
        self._lasting = []
        for options, count in self.block.fewest:
            row = np.zeros(len(self.block.options))
            row[options] = 1 / count
            self._lasting.append(row)

    def cheapest(
        self,
        cost: Floats,
        *,
        least: Floats,
        most: Floats,
        below: float = inf,
        max_nodes: int = MAX_NODES,
        precision: float | None = None,
    ) -> Cover:
        """The cheapest counts between `least` and `most`, if they cost less than `below` and than all known ones."""
        precision = self.precision if precision is None else precision
        best = min((float(cost @ counts) for counts in self.within(least, most)), default=inf)
        cutoff = min(below, best - precision * abs(best) if best < inf else inf)
        own = self.block.cover(cost)  # at these prices its bound is that of the linear relaxation
        cover = Cover(None, 0.0)
        for _ in range(PERSISTENCE):
            rows = [*self._lasting, *self.rows[-ACTIVE_ROWS:], *([] if own is None else [own])]
            cover = cheapest_cover(
                cost,
                np.array(rows).reshape(len(rows), len(cost)),
                sums=self.block.sums,
                least=least,
                most=most,
                cutoff=cutoff,
                max_nodes=max_nodes,
            )
            if cover.counts is None or (not self._recalled(cover.counts) and self.serves(cover.counts)):
                return cover
        return Cover(None, cover.bound)

    def _recalled(self, counts: Floats) -> bool:
        """Whether an inactive row cuts the counts off; it becomes active again."""
        for position, row in enumerate(self.rows[:-ACTIVE_ROWS]):
            if row @ counts < 1 - VIOLATED:
                self.rows.append(self.rows.pop(position))
                return True
        return False

    def serves(self, counts: Floats) -> bool:
        """Whether the counts serve; keeps the row or the counts either way."""
        key = counts.tobytes()
        if key in self.known:
            return True
        valuation = self._service.price_of_missing(counts)
        if valuation is None:
            self.known[key] = counts
            self._new.append(counts)
            return True
        row = self.block.cover(valuation)
        if row is not None:
            self.rows = [*self.rows[-MAX_ROWS + 1 :], row]
        return False

    def take_new(self) -> list[Floats]:
        new, self._new = self._new, []
        return new

    def within(self, least: Floats, most: Floats) -> list[Floats]:
        return [counts for counts in self.known.values() if (counts >= least).all() and (counts <= most).all()]
