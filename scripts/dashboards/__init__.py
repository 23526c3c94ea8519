"""The Grafana dashboards as code.

`python -m scripts.dashboards` writes them into the chart, `--check` reports whether the committed files are up to date.
`grafana.py` is the small part of Grafana's dashboard model that is used, `promql.py` has the queries that dashboards
share; `overview.py`, `power.py` and `faults.py` are the dashboards.
"""
