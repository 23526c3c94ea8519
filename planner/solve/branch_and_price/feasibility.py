"""Tests whether counts serve a block's demand, and gives prices per replica that prove it if they do not.

For given counts, a linear program minimises the overload that serves everything.  Its duals price the replicas: counts
worth less at these prices than the cheapest way to serve everything cannot serve
(docs/explanation/planner/decomposition.md, section 2; Benders, Partitioning procedures for solving mixed-variables
programming problems, 1962).
"""

import highspy
import numpy as np
import numpy.typing as npt

from fleet.solvers import SolverError
from planner.solve.branch_and_price.blocks import Block, Floats
from planner.solve.highs import linear_program, silent_highs

TOLERANCE = 1e-8  # of overload in replicas, or of shares
LEAKED_SHARE = 1e-7  # on options without replicas, which an overload within the tolerance may allow
SOLVER_TOLERANCE = 1e-9

Flags = npt.NDArray[np.bool_]


class FeasibilityTest:
    """The linear program of one block; each solve starts from the last basis.

    Columns: a share per route and bucket, the unserved share per bucket, and the common overload of all options.
    Either the overload is free and nothing may stay unserved, or the overload is 0 and demand may stay unserved.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._scale = np.maximum(1.0, block.leg_weight.max(axis=1, initial=0.0))
        self._solver = silent_highs(
            primal_feasibility_tolerance=SOLVER_TOLERANCE, dual_feasibility_tolerance=SOLVER_TOLERANCE
        )
        self._solver.passModel(self._program())

    def price_of_missing(self, counts: Floats) -> Floats | None:
        """None if the counts serve all demand; else prices per replica at which they are worth too little."""
        block = self._block
        if not block.bucket_of:
            return None
        for o, count in enumerate(counts):
            self._solver.changeRowBounds(o, -highspy.kHighsInf, float(count))
        overload, shares, duals = self._solve()
        if overload > TOLERANCE:
            return np.maximum(0.0, -duals[: len(counts)])
        absent = counts < 0.5
        closed = np.any(absent[block.leg_option] & (block.leg_weight > 0), axis=1)
        if (shares[closed] <= LEAKED_SHARE).all():
            return None
        self._set_bounds(closed=closed, overload=0.0, unserved=1.0)
        unserved, _, duals = self._solve()
        self._set_bounds(closed=np.zeros_like(closed), overload=highspy.kHighsInf, unserved=0.0)
        if unserved <= TOLERANCE:
            return None
        valuation = np.maximum(0.0, -duals[: len(counts)])
        return self._lifted(valuation, of_bucket=duals[len(counts) :], closed=closed, absent=absent)

    def _solve(self) -> tuple[float, Floats, Floats]:
        solver = self._solver
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:  # the last basis led astray
            solver.clearSolver()
            solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"highs: stopped with {solver.modelStatusToString(solver.getModelStatus())!r}")
        solution = solver.getSolution()
        shares = np.array(solution.col_value)[: len(self._scale)] / self._scale
        return solver.getInfo().objective_function_value, shares, np.array(solution.row_dual)

    def _set_bounds(self, *, closed: Flags, overload: float, unserved: float) -> None:
        highest = np.r_[np.where(closed, 0.0, self._scale), np.full(len(self._block.bucket_of), unserved), overload]
        columns = np.arange(len(highest), dtype=np.int32)
        self._solver.changeColsBounds(len(highest), columns, np.zeros(len(highest)), highest)

    def _lifted(self, valuation: Floats, *, of_bucket: Floats, closed: Flags, absent: Flags) -> Floats:
        """Prices of absent replicas at which no closed route is cheaper: at a count of 0 any price is valid."""
        block = self._block
        for leg in range(block.leg_option.shape[1]):
            at, weight = block.leg_option[:, leg], block.leg_weight[:, leg]
            lift = closed & (weight > 0) & absent[at]
            np.maximum.at(valuation, at[lift], of_bucket[block.column_bucket[lift]] / weight[lift])
        return valuation

    def _program(self) -> highspy.HighsLp:
        """min z + Σ_b t_b: `Σ a x - z <= n_o` per option, `Σ_r x_rb + t_b = 1` per bucket; shares scaled to 1."""
        block = self._block
        options, buckets, columns = len(block.options), len(block.bucket_of), len(block.column_bucket)
        carried, leg = np.nonzero(block.leg_weight)
        every = np.arange(columns)
        overload = columns + buckets
        taken = block.leg_weight[carried, leg] / self._scale[carried]
        return linear_program(
            [
                (carried, block.leg_option[carried, leg], taken),
                (every, options + block.column_bucket, 1 / self._scale),
                (columns + np.arange(buckets), options + np.arange(buckets), np.ones(buckets)),
                (np.full(options, overload), np.arange(options), np.full(options, -1.0)),
            ],
            cost=np.concatenate([np.zeros(columns), np.ones(buckets + 1)]),
            upper=np.concatenate([self._scale, np.zeros(buckets), [highspy.kHighsInf]]),
            row_lower=np.concatenate([np.full(options, -highspy.kHighsInf), np.ones(buckets)]),
            row_upper=np.concatenate([np.zeros(options), np.ones(buckets)]),
        )
