"""P1 where failures are to be survived: counts and cuts, without shares (docs/formulation.md, sections 3 and 4)."""

from planner.solve.resilience.search import Found, fewest_gpus, relaxed, solve

__all__ = ["Found", "fewest_gpus", "relaxed", "solve"]
