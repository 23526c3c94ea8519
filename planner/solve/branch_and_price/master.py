"""The master problem: which of the known counts of each block to take, and how many units to hire.

Its linear relaxation mixes the counts of a block convexly and prices the coupling rows (Dantzig and Wolfe,
Decomposition principle for linear programs, 1960); as an integer program it finds mixes
(docs/explanation/planner/decomposition.md, sections 3 and 5).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from fleet.solvers import SolverError
from planner.solve.branch_and_price.blocks import Block, Coupling, Floats
from planner.solve.highs import silent_highs

INFINITY = highspy.kHighsInf
DUAL_TOLERANCE = 1e-9  # larger errors of prices would weaken the bound
MIP_NODES = 2_000  # of one integer run, which need not prove anything


@dataclass(frozen=True, slots=True)
class Mixture:
    """A solution of the relaxed master."""

    value: float
    prices: Floats  # per shared row, never negative
    units: Floats
    counts: tuple[Floats, ...]  # per block, the convex mixture of its counts
    missing: float  # total violation of the coupling rows


@dataclass(frozen=True, slots=True)
class Column:
    """Counts of one block, and their use of each coupling row."""

    block: int
    counts: Floats
    use: Floats


class Master:
    """Pricing adds columns; the relaxation keeps its basis."""

    def __init__(self, coupling: Coupling, blocks: Sequence[Block], *, penalty: float) -> None:
        """Units and a priced violation per coupling row; no columns."""
        self.columns: list[Column] = []
        self._coupling, self._blocks = coupling, blocks
        self._rows, self._supplies = coupling.units.shape
        self._known: set[tuple[int, bytes]] = set()
        self._solver = silent_highs(dual_feasibility_tolerance=DUAL_TOLERANCE)
        self._add_rows(self._solver)
        for f, price in enumerate(coupling.price):
            _add_column(self._solver, price, INFINITY, enumerate(coupling.units[:, f]))
        for row in range(self._rows):
            _add_column(self._solver, penalty, INFINITY, [(row, -1.0)])

    @property
    def _first_column(self) -> int:
        return int(self._supplies + self._rows)

    def _add_rows(self, solver: highspy.Highs) -> None:
        for lower, upper in [
            *((-INFINITY, limit) for limit in self._coupling.at_most),
            *((1.0, 1.0) for _ in self._blocks),
        ]:
            solver.addRow(lower, upper, 0, np.array([], np.int32), np.array([]))

    def set_penalty(self, penalty: float) -> None:
        """The price of violating a coupling row by one."""
        for row in range(self._rows):
            self._solver.changeColCost(self._supplies + row, penalty)

    def add(self, block: int, counts: Floats) -> bool:
        """Add a column, unless it exists."""
        key = block, counts.tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        use = self._coupling.replicas[:, self._blocks[block].options] @ counts
        self.columns.append(Column(block, counts, use))
        _add_column(self._solver, 0.0, INFINITY, [*enumerate(use), (self._rows + block, 1.0)])
        return True

    def restrict(self, min_units: Floats, max_units: Floats, open_columns: Sequence[bool]) -> None:
        for f in range(self._supplies):
            self._solver.changeColBounds(f, float(min_units[f]), float(max_units[f]))
        positions = np.arange(len(open_columns), dtype=np.int32) + self._first_column
        highest = np.where(np.array(open_columns, bool), INFINITY, 0.0)
        self._solver.changeColsBounds(len(positions), positions, np.zeros(len(positions)), highest)

    def relaxed(self) -> Mixture:
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            status = self._solver.modelStatusToString(self._solver.getModelStatus())
            raise SolverError(f"highs: the master stopped with {status!r}")
        solution = self._solver.getSolution()
        values, duals = np.array(solution.col_value), np.array(solution.row_dual)
        counts = [np.zeros(len(block.options)) for block in self._blocks]
        for column, weight in zip(self.columns, values[self._first_column :], strict=True):
            if weight > 0:
                counts[column.block] += weight * column.counts
        return Mixture(
            value=self._solver.getInfo().objective_function_value,
            prices=np.maximum(0.0, -duals[: self._rows]),
            units=values[: self._supplies],
            counts=tuple(counts),
            missing=float(values[self._supplies : self._first_column].sum()),
        )

    def solve_integer(self, *, time_limit_s: float, below: float, relative_gap: float) -> tuple[Floats, ...] | None:
        """Counts per block, one column each, that hold every coupling row and cost less; None if none are found."""
        solver = silent_highs(time_limit=max(0.0, time_limit_s), mip_max_nodes=MIP_NODES, mip_rel_gap=relative_gap)
        if below < INFINITY:
            solver.setOptionValue("objective_bound", below)
        self._add_rows(solver)
        for f, price in enumerate(self._coupling.price):
            _add_column(solver, price, float(self._coupling.available[f]), enumerate(self._coupling.units[:, f]))
        for column in self.columns:
            _add_column(solver, 0.0, 1.0, [*enumerate(column.use), (self._rows + column.block, 1.0)])
        for position in range(solver.getNumCol()):
            solver.changeColIntegrality(position, highspy.HighsVarType.kInteger)
        solver.run()
        if solver.getInfo().primal_solution_status != int(highspy.SolutionStatus.kSolutionStatusFeasible):
            return None
        taken = np.array(solver.getSolution().col_value)[self._supplies :] > 0.5
        chosen = {column.block: column.counts for column, is_taken in zip(self.columns, taken, strict=True) if is_taken}
        return tuple(chosen[block] for block in range(len(self._blocks)))


def _add_column(solver: highspy.Highs, cost: float, upper: float, entries: Iterable[tuple[int, float]]) -> None:
    present = [(row, weight) for row, weight in entries if weight]
    rows, weights = np.array([row for row, _ in present], np.int32), np.array([float(w) for _, w in present])
    solver.addCol(float(cost), 0.0, float(upper), len(present), rows, weights)
