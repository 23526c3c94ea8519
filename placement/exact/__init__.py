"""Integer programs that prove the best balance of small layers, for `place --method exact` and `auto`.

`solve_exact` starts from a placement of the local search and returns one that is never worse, with a certificate per
layer.  docs/explanation/placement/exact.md has the formulation.
"""

from placement.exact.program import Certificate
from placement.exact.solve import ExactPlacement, incumbent, size_violations, solve_exact

__all__ = ["Certificate", "ExactPlacement", "incumbent", "size_violations", "solve_exact"]
