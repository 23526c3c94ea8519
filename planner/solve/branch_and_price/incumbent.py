"""The best mix found so far: counts per block that serve, and the cheapest units for them.

Counts that are dearer or violate a coupling row are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import highspy
import numpy as np

from planner.solve.branch_and_price.blocks import Block, Coupling, Floats
from planner.solve.branch_and_price.feasibility import silent_solver

ROW_TOLERANCE = 1e-7  # of a coupling row, whose largest coefficient is 1 or, for packing, in GPUs


@dataclass
class Incumbent:
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
    solver = silent_solver()
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
