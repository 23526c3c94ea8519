"""Solves mix problems: counts of units and replicas, their routing, and a proven bound.

Call `planner.solve.dispatch.solve_mix`; it chooses the method.  docs/explanation/planner/formulation.md has the
programs.
"""
