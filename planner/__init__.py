"""Plans GPUs for LLM serving: from workloads, SLOs and offers to the cheapest proven mix of instances and replicas.

The CLI, the service and the controller call `plan(PlanRequest) -> Plan`.  It is pure: clock, prices and catalogues are
arguments.  docs/explanation/planner/formulation.md states the optimisation problem.
"""

from planner.pipeline import plan
from planner.request import PlanRequest
from planner.result import Plan

__all__ = ["Plan", "PlanRequest", "plan"]
