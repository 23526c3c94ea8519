"""Many workloads that share stock, power and budget: a master program over each workload's own answers.

The formulas and why the bound is one are in docs/decomposition.md.  Importing this package loads numba; whoever
needs it only now and then imports it late.
"""

from planner.solve.branch_and_price.search import Progress
from planner.solve.branch_and_price.solve import Solved, decomposes, solve_decomposed, solve_with_progress

__all__ = ["Progress", "Solved", "decomposes", "solve_decomposed", "solve_with_progress"]
