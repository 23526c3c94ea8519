"""The twin: LLM workers that follow the planner's performance model and the power room's curves, in scaled time.

`engine` is a continuously batching engine (pure), `worker` what one replica is made of, `answers` the OpenAI protocol,
`serve_app` a Ray Serve application of them behind the router.  docs/twin.md says what is modelled and what is not.
"""
