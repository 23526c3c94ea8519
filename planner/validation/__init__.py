"""Validation of a plan by replay: its requests simulated, headroom found, spare replicas removed.

`planner.validation.slo_validation.SloValidator` is the entry.  docs/explanation/planner/replay.md, section 5, defines
the result.
"""
