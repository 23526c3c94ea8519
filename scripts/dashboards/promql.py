"""Queries that several dashboards use: increases of counters, quantiles of histograms, states as numbers."""

import re
from collections.abc import Iterable
from enum import StrEnum

from scripts.dashboards.grafana import Colour, Meaning, Query, Variable

HERE = 'namespace="$namespace"'
NAMESPACE = Variable(name="namespace", label="Namespace", query="label_values(fleetwright_build_info, namespace)")
MODE_COLOURS = {"observe": Colour.CALM, "recommend": Colour.ODD, "apply": Colour.GOOD}


# What Grafana substitutes for the variables of the boards, where all values are selected.
ANY = ("target", "row", "training_job", "server", "workload", "planning_loop")
VALUES = dict.fromkeys(ANY, ".*") | {
    "__rate_interval": "1m",
    "__range": "1h",
    "usd_per_kwh": "0.10",
    "ttft_slo": "2.5",
}


def filled_in(expression: str, namespace: str) -> str:
    """Return a query with values for its variables."""
    values = VALUES | {"namespace": namespace}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expression)


def choice(name: str, *, metric: str) -> Variable:
    """A selector of some or all values of a label of this metric."""
    query = f"label_values({metric}{{{HERE}}}, {name})"
    return Variable(name=name, label=name.replace("_", " ").capitalize(), query=query, all_values=True)


def one(expr: str, *, legend: str = "", dashed: bool = False) -> Query:
    return Query(expr=expr, legend=legend, dashed=dashed)


def highest(metric: str, *, by: str, legend: str = "", where: str = HERE, dashed: bool = False) -> Query:
    """The maximum over replicas, which all report the same value; the legend defaults to the labels of `by`."""
    return one(f"max by ({by}) ({metric}{{{where}}})", legend=legend or _labels(by), dashed=dashed)


def increase(metric: str, *, by: str, legend: str = "", where: str = HERE) -> Query:
    expr = f"sum by ({by}) (increase({metric}{{{where}}}[$__rate_interval]))"
    return one(expr, legend=legend or _labels(by))


def quantiles(metric: str, *, where: str = HERE, shares: Iterable[float] = (0.5, 0.95, 0.99)) -> list[Query]:
    return [Query(expr=quantile(share, metric, where=where), legend=f"{share * 100:g} %") for share in shares]


def quantile(share: float, metric: str, *, where: str = HERE, by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{where}}}[$__rate_interval])))"


def state(metric: str, label: str, states: Iterable[StrEnum], *, of: str, where: str) -> str:
    """One series per `of`, whose value is the position of the state that is 1 now."""
    return " or ".join(
        f'max by ({of}) ({metric}{{{where}, {label}="{each}"}} == 1) * {position}'
        for position, each in enumerate(states)
    )


def mode_meanings(modes: Iterable[StrEnum]) -> list[Meaning]:
    return [meaning(position, mode, MODE_COLOURS[mode]) for position, mode in enumerate(modes)]


def meaning(position: int, name: StrEnum, colour: Colour) -> Meaning:
    return Meaning(value=position, text=name.value, colour=colour)


def _labels(by: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
