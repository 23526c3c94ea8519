"""Converts the Grafana dashboards to Perses, for pictures: one query per series, variables replaced by their values."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

from scripts.dashboards.grafana import GRID_COLUMNS, Colour, Dashboard, Panel, Query, Unit
from scripts.dashboards.promql import filled_in

Json = dict[str, Any]
KINDS: Final = {
    "stat": "StatChart",
    "timeseries": "TimeSeriesChart",
    "state-timeline": "StatusHistoryChart",
    "status-history": "StatusHistoryChart",
    "table": "Table",
}
COLOURS: Final = {
    Colour.GOOD: "#56a64b",
    Colour.CALM: "#3274d9",
    Colour.ODD: "#e0b400",
    Colour.WARN: "#ff780a",
    Colour.BAD: "#e02f44",
    Colour.OFF: "#8e8e8e",
}
FORMATS: Final[dict[Unit, Json]] = {
    Unit.SHARE: {"unit": "percent-decimal", "decimalPlaces": 1},
    Unit.SECONDS: {"unit": "seconds"},
    Unit.BYTES: {"unit": "bytes"},
    Unit.USD: {"unit": "usd", "decimalPlaces": 2},
    Unit.PER_SECOND: {"unit": "requests/sec"},
}
DECIMAL: Final[Json] = {"unit": "decimal", "shortValues": True}
ROW_UNITS: Final = 1  # one row of Grafana's grid is about as high as one of Perses


def converted(dashboard: Dashboard, *, prometheus: str, namespace: str, minutes: int) -> Json:
    """Return what `main.jsx` draws: the dashboard, its data source, and the time range."""
    panels: Json = {}
    layouts = []
    for number, row in enumerate(dashboard.rows):
        items = []
        for position, (panel, x, y) in enumerate(_placed(row.panels)):
            name = f"panel_{number}_{position}"
            panels[name] = _panel(panel, namespace)
            place = {"x": x, "y": y, "width": panel.width, "height": panel.height * ROW_UNITS}
            items.append(place | {"content": {"$ref": f"#/spec/panels/{name}"}})
        display = {"title": row.title, "collapse": {"open": True}}
        layouts.append({"kind": "Grid", "spec": {"display": display, "items": items}})
    spec = {"display": {"name": dashboard.title}, "duration": f"{minutes}m", "panels": panels, "layouts": layouts}
    plugin = {"kind": "PrometheusDatasource", "spec": {"directUrl": prometheus}}
    return {
        "dashboard": {"kind": "Dashboard", "metadata": {"name": dashboard.uid, "project": "docs"}, "spec": spec},
        "datasource": {"default": True, "plugin": plugin},
        "range": f"{minutes}m",
    }


def _placed(panels: Any) -> Iterator[tuple[Panel, int, int]]:
    x = y = height = 0
    for panel in panels:
        if x + panel.width > GRID_COLUMNS:
            x, y, height = 0, y + height, 0
        yield panel, x, y
        x, height = x + panel.width, max(height, panel.height)


def _panel(panel: Panel, namespace: str) -> Json:
    queries = [_query(query, namespace) for query in panel.queries]
    plugin = {"kind": KINDS[panel.kind], "spec": _options(panel)}
    return {"kind": "Panel", "spec": {"display": {"name": panel.title}, "plugin": plugin, "queries": queries}}


def _query(query: Query, namespace: str) -> Json:
    spec = {"query": filled_in(query.expr, namespace), "seriesNameFormat": query.legend, "minStep": "3s"}
    return {
        "kind": "TimeSeriesQuery",
        "spec": {"plugin": {"kind": "PrometheusTimeSeriesQuery", "spec": spec}},
    }


def _options(panel: Panel) -> Json:
    form = FORMATS.get(panel.unit, DECIMAL)
    if panel.kind == "stat":
        return {"calculation": "last-number", "format": form, "mappings": _mappings(panel)} | _thresholds(panel)
    if panel.kind == "timeseries":
        visual: Json = {"display": "bar" if panel.bars else "line", "connectNulls": not panel.bars}
        if panel.bars:
            visual["stack"] = "all"
        dashed = [{"queryIndex": at, "lineStyle": "dashed"} for at, query in enumerate(panel.queries) if query.dashed]
        legend = {"position": "bottom", "mode": "list", "size": "small"}
        return {"legend": legend, "yAxis": {"format": form}, "visual": visual, "querySettings": dashed}
    if panel.kind == "table":
        columns = itertools.chain(
            [{"name": "timestamp", "hide": True}],
            (
                {"name": "value" if len(panel.queries) == 1 else f"value #{at}", "header": query.legend}
                for at, query in enumerate(panel.queries, start=1)
            ),
        )
        return {"density": "compact", "columnSettings": list(columns), "transforms": [_merged()]}
    return {"legend": {"position": "bottom", "mode": "list", "size": "small"}, "mappings": _mappings(panel)}


def _merged() -> Json:
    return {"kind": "MergeSeries", "spec": {}}


def _mappings(panel: Panel) -> list[Json]:
    return [
        {
            "kind": "Value",
            "spec": {"value": str(each.value), "result": {"value": each.text, "color": COLOURS[each.colour]}},
        }
        for each in panel.meanings
    ] or _ranges(panel)


def _ranges(panel: Panel) -> list[Json]:
    """Return the colours of a heat map's thresholds."""
    if panel.kind != "status-history":
        return []
    limits = sorted(panel.thresholds.items())
    bounds = itertools.zip_longest(limits, (value for value, _colour in limits[1:]))
    return [
        {
            "kind": "Range",
            "spec": {
                "from": low,
                "to": high if high is not None else 1e9,
                "result": {"value": "", "color": COLOURS[colour]},
            },
        }
        for (low, colour), high in bounds
    ]


def _thresholds(panel: Panel) -> Json:
    if not panel.thresholds:
        return {}
    base = panel.thresholds.get(float("-inf"), Colour.GOOD)
    limits = sorted((value, colour) for value, colour in panel.thresholds.items() if value != float("-inf"))
    steps = [{"value": value, "color": COLOURS[colour]} for value, colour in limits]
    return {"thresholds": {"mode": "absolute", "defaultColor": COLOURS[base], "steps": steps}}
