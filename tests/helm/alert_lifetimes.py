"""Builds tests of promtool in which the cause of each alert begins, lasts for two more hours than it takes to fire, and
ends.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FILE = Path(__file__).with_suffix(".yaml")
HEALTHY_MIN: Final = 60  # before the cause begins
LASTS_MIN: Final = 120  # after the alert has fired


@dataclass(frozen=True, slots=True)
class Lifetime:
    alert: str
    severity: str
    series: dict[str, list[Any]]
    fires_min: int  # after the start of the cause, at the latest
    resolves_min: int  # after its end, at the latest

    @property
    def cause_min(self) -> int:
        return self.fires_min + LASTS_MIN


def lifetimes() -> list[Lifetime]:
    """Return the cases; each value is of a gauge, or with a sign the growth of a counter per minute; `_`: no sample."""
    return [
        Lifetime(case["alert"], severity, case["series"], case.get("fires_min", 20), case.get("resolves_min", 75))
        for case in yaml.safe_load(FILE.read_text())
        for severity in case.get("severities") or [case["severity"]]
    ]


def write_tests(rules: Path, folder: Path) -> list[Path]:
    """Write a test for each alert, with only the rules that it needs: all rules over many hours would take minutes."""
    groups, cases = yaml.safe_load(rules.read_text())["groups"], lifetimes()
    files = []
    for alert in sorted({case.alert for case in cases}):
        needed = folder / f"{alert}_rules.yaml"
        needed.write_text(yaml.safe_dump({"groups": list(_needed(groups, alert))}))
        file = folder / f"{alert}.yaml"
        tests = [_test(case) for case in cases if case.alert == alert]
        file.write_text(yaml.safe_dump({"rule_files": [str(needed)], "evaluation_interval": "1m", "tests": tests}))
        files.append(file)
    return files


def _needed(groups: list[dict[str, Any]], alert: str) -> Iterator[dict[str, Any]]:
    """Yield one group with the alert after the records that it reads, so that they are evaluated in this order."""
    rules = [rule for group in groups for rule in group["rules"]]
    alerts = [rule for rule in rules if rule.get("alert") == alert]
    read = [rule for rule in rules if any(rule.get("record", "-") in alert_rule["expr"] for alert_rule in alerts)]
    slos = {slo for rule in alerts for slo in re.findall(r'slo="([\w-]+)"', rule["expr"])}
    kept = [rule for rule in read if not slos or rule.get("labels", {}).get("slo") in slos]
    yield {"name": alert, "rules": [*kept, *alerts]}


def _test(case: Lifetime) -> dict[str, Any]:
    firing = f'ALERTS{{alertname="{case.alert}", alertstate="firing", severity="{case.severity}"}}'
    fired = HEALTHY_MIN + case.fires_min
    ended = HEALTHY_MIN + case.cause_min
    expected = {HEALTHY_MIN - 1: 0, fired: 1, ended - 1: 1, ended + case.resolves_min: 0}
    minutes = (HEALTHY_MIN, case.cause_min, case.resolves_min + 5)
    return {
        "name": f"lifetime of {case.alert}, {case.severity}",
        "interval": "1m",
        "input_series": [
            {"series": series, "values": " ".join(_values([str(value) for value in values], minutes))}
            for series, values in case.series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"(count({firing}) or vector(0)) > bool 0",
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": value}],
            }
            for minute, value in expected.items()
        ],
    }


def _values(values: list[str], minutes: tuple[int, ...]) -> Iterator[str]:
    """Yield the samples of the times before, during and after the cause; after it the series is as before."""
    before, during = values
    total = 0.0
    for value, count in zip((before, during, before), minutes, strict=True):
        if value == "_":
            yield f"_x{count}"
        elif value.startswith("+"):
            step = float(value)
            yield f"{total + step:g}+{step:g}x{count - 1}"
            total += step * count
        else:
            yield f"{float(value):g}x{count - 1}"
