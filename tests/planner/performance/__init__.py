"""The performance model: physics, fit, and the rates that follow."""
