"""The emulator: LLM workers without GPUs, by the planner's performance model and the power curves, in scaled time.

`engine` is pure.  docs/explanation/runtime/emulator.md has the model and its limits.  Entry points:

- `serve_app.build`: a Ray Serve application of workers behind the router; `demo.Demo` plays `fleetwright demo`.
- `python -m deploy.emulator.openai_server --gpu H100-SXM --time-scale 10 --engine vllm|sglang`: one engine on HTTP with
  `/v1/completions`, `/v1/chat/completions`, `/health` and a real engine's `/metrics`; writes `{"url": ...}`.
- `metric_pages.VllmPage`, `metric_pages.SglangPage`: the pages, by version of the engine.
"""
