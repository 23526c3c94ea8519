"""A small typed part of Grafana's dashboard JSON model, schema version 39 (Grafana 10.4 and newer).

Panels are laid out by their width, left to right and top to bottom, on Grafana's grid of 24 columns.
"""

import itertools
import math
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypedDict, Unpack

SCHEMA_VERSION = 39
GRID_COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


class Unit(StrEnum):
    """Grafana's unit names."""

    COUNT = "short"
    PER_SECOND = "reqps"
    SECONDS = "s"
    WATTS = "watt"
    CELSIUS = "celsius"
    KILOWATT_HOURS = "kwatth"
    USD = "currencyUSD"
    HERTZ = "hertz"
    SHARE = "percentunit"
    BYTES = "bytes"


class Colour(StrEnum):
    """Grafana's named colours by meaning."""

    GOOD = "green"
    CALM = "blue"
    ODD = "yellow"
    WARN = "orange"
    BAD = "red"
    OFF = "text"


OPTIONS: Mapping[str, Json] = {  # by kind of panel
    "stat": {"colorMode": "background", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}},
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "state-timeline": {"mergeValues": True, "showValue": "auto", "rowHeight": 0.8, "legend": {"displayMode": "list"}},
    "table": {"cellHeight": "sm", "footer": {"show": False}},
    "status-history": {"showValue": "never", "rowHeight": 0.9, "colWidth": 1, "legend": {"displayMode": "list"}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    expr: str
    legend: str
    dashed: bool = False

    def to_json(self, ref: str, *, table: bool = False) -> Json:
        target = {"refId": ref, "datasource": DATASOURCE, "expr": self.expr, "legendFormat": self.legend}
        return target | ({"format": "table", "instant": True} if table else {"range": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    value: int
    text: str
    colour: Colour


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A page of the console about the labels of a series, such as `#/targets/${__field.labels.target}`."""

    title: str
    page: str

    def to_json(self) -> Json:
        return {"title": self.title, "url": f"${{console}}/{self.page}", "targetBlank": True}


@dataclass(frozen=True, slots=True)
class Panel:
    kind: str
    title: str
    description: str
    queries: Sequence[Query]
    unit: Unit = Unit.COUNT
    width: int = 8
    height: int = 8
    thresholds: Mapping[float, Colour] = field(default_factory=dict)  # lower limit: colour; `-inf`: below all others
    meanings: Sequence[Meaning] = ()
    link: Link | None = None  # of each series
    steps: bool = False  # draw as a step function
    bars: bool = False

    def to_json(self, *, panel_id: int, x: int, y: int) -> Json:
        is_table = self.kind == "table"
        refs = zip(string.ascii_uppercase, self.queries, strict=False)
        targets = [query.to_json(ref, table=is_table) for ref, query in refs]
        dash = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}}
        overrides = [
            {"matcher": {"id": "byFrameRefID", "options": target["refId"]}, "properties": [dash]}
            for target, query in zip(targets, self.queries, strict=True)
            if query.dashed
        ]
        return {
            "id": panel_id,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": targets,
            "fieldConfig": {"defaults": self._defaults(), "overrides": overrides},
            "options": OPTIONS[self.kind],
        } | ({"transformations": self._columns()} if is_table else {})

    def _defaults(self) -> Json:
        base = self.thresholds.get(-math.inf, Colour.GOOD)
        limits = sorted((value, colour) for value, colour in self.thresholds.items() if value != -math.inf)
        steps: list[Json] = [{"value": None, "color": base}]
        steps += [{"value": value, "color": colour} for value, colour in limits]
        mappings = {
            str(m.value): {"index": index, "text": m.text, "color": m.colour} for index, m in enumerate(self.meanings)
        }
        lines = {
            "drawStyle": "bars" if self.bars else "line",
            "lineInterpolation": "stepAfter" if self.steps else "linear",
            "fillOpacity": 60 if self.bars else 0,
            "stacking": {"mode": "normal" if self.bars else "none"},
            "thresholdsStyle": {"mode": "line" if self.thresholds else "off"},
        }
        links = {"links": [self.link.to_json()]} if self.link is not None else {}
        return links | {
            "unit": self.unit,
            "thresholds": {"mode": "absolute", "steps": steps},
            "mappings": [{"type": "value", "options": mappings}] if mappings else [],
            "custom": lines if self.kind == "timeseries" else {},
        }

    def _columns(self) -> list[Json]:
        """Join the queries by their labels, and name the column of each query by its legend."""
        names = {
            f"Value #{ref}": query.legend for ref, query in zip(string.ascii_uppercase, self.queries, strict=False)
        }
        organize = {"excludeByName": {"Time": True}, "renameByName": names}
        return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]


class PanelOptions(TypedDict, total=False):
    """Overrides of a panel's defaults."""

    unit: Unit
    width: int
    height: int
    thresholds: Mapping[float, Colour]
    meanings: Sequence[Meaning]
    link: Link


def stat(title: str, description: str, *queries: Query, **options: Unpack[PanelOptions]) -> Panel:
    """One large number."""
    return replace(Panel("stat", title, description, queries, width=4, height=4), **options)


def lines(title: str, description: str, *queries: Query, **options: Unpack[PanelOptions]) -> Panel:
    return Panel("timeseries", title, description, queries, **options)


def durations(title: str, description: str, *queries: Query, **options: Unpack[PanelOptions]) -> Panel:
    return replace(lines(title, description, *queries, unit=Unit.SECONDS), **options)


def steps(title: str, description: str, *queries: Query, **options: Unpack[PanelOptions]) -> Panel:
    return replace(lines(title, description, *queries, **options), steps=True)


def bars(title: str, description: str, *queries: Query, **options: Unpack[PanelOptions]) -> Panel:
    return replace(lines(title, description, *queries, **options), bars=True)


def timeline(title: str, description: str, *queries: Query, **options: Unpack[PanelOptions]) -> Panel:
    """One band per series, coloured by the meaning of its value."""
    return Panel("state-timeline", title, description, queries, **options)


def table(title: str, description: str, *queries: Query, **options: Unpack[PanelOptions]) -> Panel:
    """A table with a row per set of labels and a column per query, named by the query's legend."""
    return Panel("table", title, description, queries, **options)


def heat_rows(title: str, description: str, *queries: Query, **options: Unpack[PanelOptions]) -> Panel:
    """A heat map with one named row per series."""
    return Panel("status-history", title, description, queries, **options)


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A selector at the top of the dashboard, filled by a query of label values."""

    name: str
    label: str
    query: str
    all_values: bool = False

    def to_json(self) -> Json:
        return {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": DATASOURCE,
            "query": {"query": self.query, "refId": self.name},
            "refresh": 2,  # on a change of the time range
            "sort": 1,
            "includeAll": self.all_values,
            "multi": self.all_values,
        } | ({"allValue": ".*"} if self.all_values else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBox:
    """A text at the top of the dashboard that the reader may change."""

    name: str
    label: str
    default: str

    def to_json(self) -> Json:
        option = {"text": self.default, "value": self.default, "selected": True}
        return {
            "type": "textbox",
            "name": self.name,
            "label": self.label,
            "query": self.default,
            "current": option,
            "options": [option],
        }


CONSOLE = TextBox(name="console", label="Console", default="http://127.0.0.1:8400")
BOARD_LINKS = {
    "type": "dashboards",
    "title": "Fleetwright",
    "tags": ["fleetwright"],
    "includeVars": True,
    "keepTime": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    uid: str
    title: str
    description: str
    variables: Sequence[Variable | TextBox]
    rows: Sequence[Row]

    def queries(self) -> Iterator[Query]:
        return itertools.chain.from_iterable(panel.queries for row in self.rows for panel in row.panels)

    def to_json(self) -> Json:
        datasource = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["fleetwright"],
            "links": [BOARD_LINKS],
            "schemaVersion": SCHEMA_VERSION,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "utc",
            "templating": {"list": [datasource, *(variable.to_json() for variable in (*self.variables, CONSOLE))]},
            "panels": list(_layout(self.rows)),
        }


def _layout(rows: Iterable[Row]) -> Iterator[Json]:
    ids = itertools.count(1)
    y = 0
    for row in rows:
        yield _row_header(row.title, panel_id=next(ids), y=y)
        y += 1
        x = line_height = 0
        for panel in row.panels:
            if x + panel.width > GRID_COLUMNS:
                x, y, line_height = 0, y + line_height, 0
            yield panel.to_json(panel_id=next(ids), x=x, y=y)
            x, line_height = x + panel.width, max(line_height, panel.height)
        y += line_height


def _row_header(title: str, *, panel_id: int, y: int) -> Json:
    return {
        "id": panel_id,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": GRID_COLUMNS, "h": 1},
        "panels": [],
    }
