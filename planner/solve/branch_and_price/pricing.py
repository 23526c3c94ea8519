"""The cheapest counts with which one block can serve its demand, at any prices per replica.

The set of counts that can serve does not depend on the prices, so what is learnt about it in one search helps all
later ones: cover rows that cut off what cannot serve, and counts that can (docs/decomposition.md, section 2).
"""

from dataclasses import dataclass, field
from math import inf

import numpy as np

from planner.solve.branch_and_price.blocks import Block, Floats
from planner.solve.branch_and_price.covering import Cover, cheapest_cover
from planner.solve.branch_and_price.feasibility import FeasibilityTest

MAX_ROWS = 200  # cover rows kept
ACTIVE_ROWS = 20  # of these, how many a search begins with: the last to have mattered, since prices move little
MAX_NODES = 60_000  # of one search; what is left open then only lowers its bound
VIOLATED = 1e-7  # a row that misses less than this holds
PERSISTENCE = 60  # searches in a row whose answer turns out not to serve, before only the bound is given


@dataclass(frozen=True, slots=True)
class Priced:
    """Counts better than any known, if there are any; and what no counts can be below at these prices."""

    counts: Floats | None
    bound: float


@dataclass
class Pricer:
    """One block, and all that has been learnt about it."""

    block: Block
    precision: float  # relative: a smaller gain over the best known is none
    rows: list[Floats] = field(default_factory=list)
    known: dict[bytes, Floats] = field(default_factory=dict)  # counts that serve

    def __post_init__(self) -> None:
        """The least replicas of each load are cover rows from the start, and stay."""
        self._service = FeasibilityTest(self.block)
        self._new: list[Floats] = []
        self._lasting = []
        for options, count in self.block.fewest:
            row = np.zeros(len(self.block.options))
            row[options] = 1 / count
            self._lasting.append(row)

    def cheapest(
        self, cost: Floats, *, least: Floats, most: Floats, below: float = inf, max_nodes: int = MAX_NODES
    ) -> Priced:
        """The cheapest counts between `least` and `most`, where they cost less than that and than all known ones."""
        best = min((float(cost @ counts) for counts in self.within(least, most)), default=inf)
        cutoff = min(below, best - self.precision * abs(best) if best < inf else inf)
        own = self.block.cover(cost)  # at these very prices: its bound is that of the linear relaxation
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
                return Priced(cover.counts, cover.bound)
        return Priced(None, cover.bound)

    def _recalled(self, counts: Floats) -> bool:
        """Whether a row set aside cuts the counts off; if so it is among the active ones again."""
        for position, row in enumerate(self.rows[:-ACTIVE_ROWS]):
            if row @ counts < 1 - VIOLATED:
                self.rows.append(self.rows.pop(position))
                return True
        return False

    def serves(self, counts: Floats) -> bool:
        """Whether they do; learning from it either way."""
        key = counts.tobytes()
        if key in self.known:
            return True
        worth = self._service.price_of_missing(counts)
        if worth is None:
            self.known[key] = counts
            self._new.append(counts)
            return True
        row = self.block.cover(worth)
        if row is not None:
            self.rows = [*self.rows[-MAX_ROWS + 1 :], row]
        return False

    def take_new(self) -> list[Floats]:
        """Counts that serve, learnt since this was last asked."""
        new, self._new = self._new, []
        return new

    def within(self, least: Floats, most: Floats) -> list[Floats]:
        """Known counts inside bounds."""
        return [counts for counts in self.known.values() if (counts >= least).all() and (counts <= most).all()]
