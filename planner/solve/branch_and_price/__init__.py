"""Branch and price for many workloads that share stock, power or budget (docs/explanation/planner/decomposition.md).

`decomposes` tests whether it applies, `solve_decomposed` solves.  The import loads numba and compiles on first use, so
`planner.solve.dispatch` imports this package late.
"""

from planner.solve.branch_and_price.solve import Solved, decomposes, solve_decomposed

__all__ = ["Solved", "decomposes", "solve_decomposed"]
