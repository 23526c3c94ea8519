"""Explains a plan: binding limits with their prices, other mixes, conflicts, and the distance from an ideal schedule.

The planner's pipeline calls `planner.explain.explanation.explain`.  docs/explanation/planner/explanations.md describes
each part.
"""
