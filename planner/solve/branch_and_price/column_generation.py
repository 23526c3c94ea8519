"""Column generation: prices for the shared rows, each block's answer to them, and what both prove together.

At any prices `w >= 0` of the shared rows the Lagrangian value `L(w)` is a proven bound (docs/decomposition.md, section
4).  The master proposes prices; what is asked of the blocks lies between those and the best so far (Wentges, Weighted
Dantzig-Wolfe decomposition for linear mixed-integer programming, 1997), which keeps the prices from jumping about.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.solve.branch_and_price.blocks import Block, Coupling, Floats
from planner.solve.branch_and_price.master import Master, Mixture
from planner.solve.branch_and_price.pricing import Pricer

SMOOTHING = 0.5  # how much of the best prices stays in the next
CONVERGED = 3e-7  # relative: the relaxed master's value and the bound are the same
CLOSE_IN_PRECISIONS = 5.0  # the same where more than rounding may be left unproven
HOLDS = 1e-7  # a shared row that misses less than this holds
FIRST_PENALTY, PENALTY_STEP, MAX_PENALTY = 5.0, 10.0, 500.0  # in the dearest unit's price


@dataclass(frozen=True)
class Node:
    """A part of all mixes: units and counts between bounds; what is proven about it, and at which prices."""

    bound: float
    prices: Floats
    least_units: Floats
    most_units: Floats
    counts: Mapping[int, tuple[Floats, Floats]] = field(default_factory=dict)  # block -> least, most; else all


class ColumnGeneration:
    """All blocks and the master between them."""

    def __init__(self, blocks: Sequence[Block], coupling: Coupling, *, precision: float) -> None:
        """Nothing is known yet.  The precision is relative: what is nearer to the best need not be found."""
        self.blocks, self.coupling = blocks, coupling
        self.pricers = [Pricer(block, precision) for block in blocks]
        self.rounds = 0
        self._close = max(CONVERGED, CLOSE_IN_PRECISIONS * precision)
        self._unit_price = float(coupling.price.max(initial=0.0)) or 1.0
        self._penalty = FIRST_PENALTY * self._unit_price
        self.master = Master(coupling, blocks, penalty=self._penalty)

    def root(self) -> Node:
        """Everything, beginning with the prices of the supplies: each block as if it were the only one."""
        supplies = len(self.coupling.price)
        prices = np.zeros(len(self.coupling.at_most))
        prices[:supplies] = self.coupling.price / -np.diag(self.coupling.units[:supplies])
        return Node(0.0, prices, np.zeros(supplies), self.coupling.available)

    def scarcity(self, node: Node) -> tuple[float, tuple[float, ...]]:
        """The highest price of a GPU above its hire; and the price of each limit's own unit."""
        supplies = len(self.coupling.price)
        above = node.prices[:supplies] - self.coupling.price / -np.diag(self.coupling.units[:supplies])
        limits = node.prices[supplies:] / self.coupling.scale[supplies:]
        return max(0.0, float(above.max(initial=0.0))), tuple(map(float, limits))

    def solve(
        self, node: Node, *, cutoff: Callable[[], float], seconds_left: Callable[[], float]
    ) -> tuple[Node, Mixture | None]:
        """The node with the best bound found, and the mixture where the relaxation is solved to its end.

        It is not where the bound reaches the cutoff first, or time is up.  Where no penalty makes the shared rows hold,
        and yet the blocks' answers do not prove that none could, the mixture that breaks them least says where to part.
        """
        smoothing = SMOOTHING if self.rounds == 0 else 0.0  # once the columns are good, so are the master's prices
        if not self._has_columns(node):
            node = self._priced(node, node.prices, seconds_left)
        while node.bound < cutoff() and seconds_left() > 0:
            self.master.restrict(node.least_units, node.most_units, self._open(node))
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

    def _has_columns(self, node: Node) -> bool:
        """Whether the master knows counts inside the node's bounds for every block."""
        inside = {
            column.block for column, is_open in zip(self.master.columns, self._open(node), strict=True) if is_open
        }
        return len(inside) == len(self.blocks)

    def _priced(self, node: Node, prices: Floats, seconds_left: Callable[[], float]) -> Node:
        """Ask every block, and keep the better of the bound here and the one known; that alone if time is up."""
        self.rounds += 1
        prices = self._without_free_units(prices)
        coupling = self.coupling
        unit_cost = coupling.price + prices @ coupling.units
        units = np.where(unit_cost < 0, node.most_units, node.least_units)
        bound = float(-prices @ coupling.at_most + unit_cost[units > 0] @ units[units > 0])
        cost = np.maximum(0.0, prices @ coupling.replicas)
        for position, pricer in enumerate(self.pricers):
            if seconds_left() <= 0:
                return node
            least, most = self.bounds(node, position)
            bound += pricer.cheapest(cost[pricer.block.options], least=least, most=most).bound
            for counts in pricer.take_new():
                self.master.add(position, counts)
        return replace(node, bound=bound, prices=prices) if bound > node.bound else node

    def bounds(self, node: Node, block: int) -> tuple[Floats, Floats]:
        """Between which counts a block may choose."""
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
        """Lower the price of GPUs where a supply without limit would otherwise pay for being hired."""
        coupling = self.coupling
        unit_cost = coupling.price + prices @ coupling.units
        prices = prices.copy()
        for f in np.flatnonzero((unit_cost < 0) & np.isinf(coupling.available)):
            prices[f] = max(0.0, prices[f] + unit_cost[f] / -coupling.units[f, f])
        unit_cost = coupling.price + prices @ coupling.units
        if ((unit_cost < -1e-9) & np.isinf(coupling.available)).any():
            return self.root().prices
        return prices


def most_cost(coupling: Coupling) -> float:
    """No mix costs more; infinite where a supply has no end."""
    priced = coupling.price > 0
    return float(coupling.price[priced] @ coupling.available[priced]) if priced.any() else 0.0
