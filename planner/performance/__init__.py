"""What a replica carries when nobody measured it: a roofline of the engine's steps (docs/formulation.md, section 6)."""

from planner.performance.roofline import Coefficients, Estimate, Replica, Steady, highest_rate, misfit, steady_state

__all__ = ["Coefficients", "Estimate", "Replica", "Steady", "highest_rate", "misfit", "steady_state"]
