"""Continuous planning: each window, from the live demand of targets to the plan that they should have.

`controller.PlanningLoops` runs all planning loops beside the targets; `planner.planning_loop` decides.
docs/explanation/planner/continuous-planning.md draws the state machine.
"""
