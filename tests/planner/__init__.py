"""The planner: request, performance model, programs, answer."""
