"""The cheapest counts with which one block serves its demand, at any prices per replica.

The counts that serve do not depend on the prices, so each search helps later ones: it leaves cover rows, which cut off
counts that cannot serve, and counts that can (docs/explanation/planner/decomposition.md, section 2).
"""

from dataclasses import dataclass, field
from math import inf

import numpy as np

from planner.solve.branch_and_price.blocks import Block, Floats
from planner.solve.branch_and_price.covering import Cover, cheapest_cover
from planner.solve.branch_and_price.feasibility import FeasibilityTest

MAX_ROWS = 200  # cover rows kept
ACTIVE_ROWS = 20  # rows at the start of a search: the last active ones, because prices change little
MAX_NODES = 60_000  # of one search; open nodes beyond only weaken its bound
VIOLATED = 1e-7  # of a row; a smaller violation is rounding
PERSISTENCE = 60  # searches with a result that does not serve, before only the bound is returned


@dataclass(frozen=True, slots=True)
class Priced:
    """Counts better than all known ones, if any, and a lower bound at these prices."""

    counts: Floats | None
    bound: float


@dataclass
class Pricer:
    """One block with its cover rows and known counts."""

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
        self, cost: Floats, *, least: Floats, most: Floats, below: float = inf, max_nodes: int = MAX_NODES
    ) -> Priced:
        """The cheapest counts between `least` and `most`, if they cost less than that and than all known ones."""
        best = min((float(cost @ counts) for counts in self.within(least, most)), default=inf)
        cutoff = min(below, best - self.precision * abs(best) if best < inf else inf)
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
                return Priced(cover.counts, cover.bound)
        return Priced(None, cover.bound)

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
