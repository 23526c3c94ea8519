"""The router: the ingress of one model, which decides per request the deployment that serves it, and when.

`serve_app.behind_router` builds it as a Ray Serve application; `process.run_router` runs it before engines on HTTP.
The decisions are pure (`scheduler`, `table`, `row_power`).  See docs/explanation/runtime/router.md.
"""
