"""Many workloads that share stock, power and budget: a master program over each workload's own answers.

The formulas and why the bound is one are in docs/decomposition.md.  Importing this package loads numba; whoever
needs it only now and then imports it late.
"""

from planner.decomposition.search import Progress
from planner.decomposition.solve import Solved, decomposes, solve_and_tell, solve_decomposed

__all__ = ["Progress", "Solved", "decomposes", "solve_and_tell", "solve_decomposed"]
