"""The emulator: LLM workers without GPUs, by the planner's performance model and the power curves, in scaled time.

`engine` is pure.  docs/explanation/runtime/emulator.md has the model and its limits.  Entry points:

- `serve_app.build`: a Ray Serve application of workers behind the router; `demo.Demo` plays `fleetwright demo`.
- `python -m deploy.emulator.openai_server --gpu H100-SXM --time-scale 10 --engine vllm|sglang`: one engine on HTTP with
  `/v1/completions`, `/v1/chat/completions`, `/health` and the `/metrics` of that engine; writes `{"url": ...}`.
- `python -m deploy.emulator.fleet_server fleet.yaml`: many such engines, each at a port, and an address that balances
  requests, changes the counts of options and reports outcomes; `fleet.Fleet(FleetSpec)` is the same in a process.
- `python -m deploy.emulator.trace_player FILE --url URL --time-scale 10 [--change S:RATE:PROMPT]`: replays a trace;
  `trace_player.TracePlayer(trace=..., url=..., time_scale=...).play()` is the same in a process.
- `metric_pages.VllmPage`, `metric_pages.SglangPage`: the pages of metrics, by version of the engine.
"""
