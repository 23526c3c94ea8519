"""P1 with failures to survive, by counts and cuts (docs/explanation/planner/formulation.md, section 4)."""

from planner.solve.resilience.search import fewest_gpus, relaxed, solve

__all__ = ["fewest_gpus", "relaxed", "solve"]
