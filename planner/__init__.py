"""Workload, objectives and offers in; the cheapest proven mix of GPUs out.

`plan` is the one entry.  The formulation is in docs/formulation.md.
"""

from planner.answer import Plan
from planner.pipeline import plan
from planner.request import PlanRequest

__all__ = ["Plan", "PlanRequest", "plan"]
