"""The Grafana dashboards as code.

`python -m scripts.dashboards` writes them into the chart, `--check` reports whether the committed files are up to date.
`grafana.py` models the part of Grafana's dashboard JSON that they use, `promql.py` has the shared queries, and
`overview.py`, `serving.py`, `loop.py`, `moe.py`, `nodes.py`, `power.py` and `faults.py` define the dashboards.
`not_shown.py` lists the metrics that no panel shows.
"""
