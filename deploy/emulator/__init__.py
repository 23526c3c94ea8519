"""The emulator: LLM workers without GPUs, by the planner's performance model and the power curves, in scaled time.

`serve_app.build` is a Ray Serve application of such workers behind the router; `demo.Demo` plays `fleetwright demo`.
`engine` is pure.  docs/explanation/runtime/emulator.md has the model and its limits.
"""
