"""Enumerates the ways to run a replica of each workload and translates the request's rules into numbers.

The pipeline calls `planner.options.builder.candidates`.  docs/explanation/planner/options.md has the rules.
"""
