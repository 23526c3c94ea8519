"""Tests of the conversion of the boards to Perses, which draws them for the documentation."""

import json

import pytest

from scripts.boards.perses import converted
from scripts.dashboards.__main__ import DASHBOARDS
from scripts.dashboards.grafana import Dashboard


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: str(each.uid))
def test_every_panel_and_query_is_converted_without_variables(dashboard: Dashboard) -> None:
    board = converted(dashboard, prometheus="http://127.0.0.1:9090", namespace="fleet", minutes=5)
    panels = board["dashboard"]["spec"]["panels"].values()
    expected = [(panel.title, len(panel.queries)) for row in dashboard.rows for panel in row.panels]
    assert [(each["spec"]["display"]["name"], len(each["spec"]["queries"])) for each in panels] == expected
    queries = [query["spec"]["plugin"]["spec"]["query"] for each in panels for query in each["spec"]["queries"]]
    assert "$" not in "".join(queries)
    layouts = board["dashboard"]["spec"]["layouts"]
    placed = [item["content"]["$ref"] for layout in layouts for item in layout["spec"]["items"]]
    assert len(set(placed)) == len(expected)
    json.dumps(board, allow_nan=False)
