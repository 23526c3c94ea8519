"""P1 with failures to survive, by counts and cuts (docs/explanation/planner/formulation.md, section 4)."""

from planner.solve.resilience.search import Found, fewest_gpus, relaxed, solve

__all__ = ["Found", "fewest_gpus", "relaxed", "solve"]
