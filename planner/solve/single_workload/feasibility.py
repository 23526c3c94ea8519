"""Tests whether units per class carry the demand, and gives a violated row if they do not.

Units `n` carry it exactly if `Σ_g π_g n_g >= Σ_b min_g π_g a_gb` for every price `π >= 0` of capacity: Farkas' lemma on
`demand` and `capacity` (Benders, Partitioning procedures for solving mixed-variables programming problems, 1962).  A
linear program minimises the cost of more capacity; its duals are the most violated prices.  Only its right-hand side
changes, so each solve starts from the last basis.  The right-hand side of a row is the sum above, computed from the
price, and so free of the program's rounding.
"""

from dataclasses import dataclass

import highspy
import numpy as np

from fleet.solvers import Limits, SolverError
from planner.solve.single_workload.program import quiet
from planner.solve.single_workload.table import Floats

SAFETY = 1e-9  # relative reduction of a right-hand side: a smaller violation is rounding


class OutOfTimeError(SolverError):
    """The time limit expired during a test."""


@dataclass(frozen=True, slots=True)
class Row:
    """`weights · n >= least` for all units `n` that carry the demand."""

    weights: Floats
    least: float


def row_at(units: Floats, prices: Floats) -> Row:
    """The row that a price of capacity proves."""
    served = np.isfinite(units)
    cost = np.where(served, prices[:, None] * np.where(served, units, 0.0), np.inf)
    return Row(prices, float(cost.min(axis=0).sum()) * (1 - SAFETY))


class FeasibilityTest:
    """The linear program of one presolved table: `a[g, b]` units of a class per bucket, infinite if it cannot."""

    def __init__(self, units: Floats, prices_usd_per_h: Floats, *, limits: Limits) -> None:
        self._units = units
        self._highs = quiet(limits)
        self._highs.setOptionValue("presolve", "off")  # costs more time than it saves
        self._highs.passModel(_program(units, prices_usd_per_h))
        self._rows = np.arange(len(units), dtype=np.int32)
        self._below = np.full(len(units), -highspy.kHighsInf)

    def violated_row(self, counts: Floats) -> Row | None:
        """A row that these units violate, or None if they carry the demand."""
        self._highs.changeRowsBounds(len(counts), self._rows, self._below, counts)
        self._highs.run()
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kTimeLimit:
            raise OutOfTimeError("highs: no time left")
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"highs: stopped with {self._highs.modelStatusToString(status)!r}")
        duals = np.array(self._highs.getSolution().row_dual[: len(counts)])
        row = row_at(self._units, np.maximum(0.0, -duals))
        return row if row.weights @ counts < row.least else None


def _program(units: Floats, prices: Floats) -> highspy.HighsLp:
    """min Σ_g π_g s_g: `Σ_b a_gb x_gb - s_g <= n_g`, `Σ_g x_gb = 1`; shares scaled so that no coefficient exceeds 1."""
    group, bucket = np.nonzero(np.isfinite(units))
    weight = units[group, bucket]
    scale = np.maximum(1.0, weight)
    count, (groups, buckets) = len(group), units.shape
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count + groups, groups + buckets
    lp.col_cost_ = np.concatenate([np.zeros(count), prices])
    lp.col_lower_ = np.zeros(count + groups)
    lp.col_upper_ = np.full(count + groups, highspy.kHighsInf)
    lp.row_lower_ = np.concatenate([np.full(groups, -highspy.kHighsInf), np.ones(buckets)])
    lp.row_upper_ = np.concatenate([np.zeros(groups), np.ones(buckets)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.append(np.arange(0, 2 * count + 1, 2), 2 * count + 1 + np.arange(groups)).astype(np.int32)
    rows = np.stack([group, groups + bucket], axis=1).ravel()
    values = np.stack([weight / scale, 1.0 / scale], axis=1).ravel()
    lp.a_matrix_.index_ = np.concatenate([rows, np.arange(groups)]).astype(np.int32)
    lp.a_matrix_.value_ = np.concatenate([values, np.full(groups, -1.0)])
    return lp
