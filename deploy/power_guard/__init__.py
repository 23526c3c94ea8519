"""The process of the power guard (docs/explanation/power/guard.md); `run_guard` is the entry point.

Every period it polls all agents, takes one step of `power.guard`, and sends the commands.  It needs no database,
Prometheus, Ray or API.
"""
