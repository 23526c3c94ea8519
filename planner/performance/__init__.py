"""The predicted rate of a replica without measurements: a calibrated roofline of the engine's steps.

`highest_rates` is the planner's entry, `step_costs` the replay's, and `planner.performance.fitting.fit` fits the
coefficients.  docs/explanation/planner/performance.md has the formulas.
"""

from planner.performance.config import ReplicaConfig
from planner.performance.rates import highest_rates
from planner.performance.steps import StepCosts, step_costs, step_s

__all__ = ["ReplicaConfig", "StepCosts", "highest_rates", "step_costs", "step_s"]
