"""Check that every metric named in alerts, dashboards and documentation is registered by a product process.

    python -m scripts.metric_checks

A name is registered as the first argument of a metric's class, `Counter("fleetwright_x", ...)`, or of a wrapper such as
`def gauge(name): return Gauge(f"fleetwright_row_{name}", ...)` in the same module.  A variable there stands for the
names in the table that it iterates over.  A module that no other product module imports registers nothing.
Alerts and dashboards must name a series of the metric's type: a counter's ends in `_total`, a gauge has no suffix.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from scripts.repo_checks import ROOT

PACKAGES = ("fleet", "planner", "placement", "power", "faults", "deploy", "api", "fleetwright")
NAME = re.compile(r"(?<![\w:])fleetwright_[a-z0-9_]*[a-z0-9]\b")
# What exposition appends to a family's name, by the metric's class.
SUFFIXES = {
    "Counter": ("_total", "_created"),
    "Gauge": ("",),
    "Histogram": ("_bucket", "_count", "_sum", "_created"),
    "Summary": ("", "_count", "_sum", "_created"),
    "Info": ("_info",),
}
# Names in the documentation that resemble metric names.
NOT_METRICS = frozenset({"fleetwright_net"})


class Wrapper(NamedTuple):
    """What a function puts before the name of a metric, and the class of the metric that it registers."""

    prefix: str
    kind: str


def main() -> int:
    unknown = [
        f"{path.relative_to(ROOT)}:{line}: no process exports {name}" for path, line, name in unknown_metrics(ROOT)
    ]
    for text in unknown:
        print(text)
    registered = len(registered_metrics(ROOT))
    print(f"{len(unknown)} unknown metrics" if unknown else f"{registered} metrics registered, none unknown")
    return 1 if unknown else 0


def unknown_metrics(root: Path) -> list[tuple[Path, int, str]]:
    """Return the uses of names that no process exports.  A page may also name the family of a metric."""
    registered = registered_metrics(root)
    exported = set(series(registered))
    return [
        (path, line, name)
        for path, line, name in used_metrics(root)
        if name not in exported and not (path.suffix == ".md" and name in registered)
    ]


def series(registered: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of the exported time series of families by their classes."""
    for family, kind in registered.items():
        yield from (f"{family}{suffix}" for suffix in SUFFIXES[kind])


def used_metrics(root: Path) -> Iterator[tuple[Path, int, str]]:
    files = root / "helm" / "fleetwright" / "files"
    pages = [root / "README.md", root / "helm" / "fleetwright" / "README.md", *sorted((root / "docs").rglob("*.md"))]
    recorded = set(re.findall(r"record:\s*(\S+)", (files / "alerts.yaml").read_text(encoding="utf-8")))
    for path in (files / "alerts.yaml", *sorted((files / "dashboards").glob("*.json")), *pages):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for name in NAME.findall(line):
                if name not in recorded and name not in NOT_METRICS:
                    yield path, number, name


def registered_metrics(root: Path) -> dict[str, str]:
    """Return the class of each registered family."""
    trees = {
        ".".join(path.relative_to(root).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    imported = set(_imported(trees.values()))
    return {
        name.removesuffix("_total") if kind == "Counter" else name: kind
        for module, tree in trees.items()
        if module in imported or module.endswith("__main__")
        for name, kind in _registered(tree)
    }


def wrappers(tree: ast.Module) -> dict[str, Wrapper]:
    """Return the functions of a module that register a metric whose name they take as a parameter."""
    return {
        function.name: Wrapper(prefix, kind)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and (kind := _kind(call)) is not None
        if (prefix := _prefix(call, {argument.arg for argument in function.args.args})) is not None
    }


def _imported(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Yield every module that some module imports."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)


def _registered(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names that a module registers, with the classes of the metrics."""
    known = wrappers(tree)
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        kind = _kind(call)
        wrapper = known.get(_called(call)) if kind is None else Wrapper("", kind)
        if wrapper is not None:
            for literal in _literals(tree, call.args[0]):
                if NAME.fullmatch(name := wrapper.prefix + literal):
                    yield name, wrapper.kind


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _kind(call: ast.Call) -> str | None:
    """Return the class of the metric that a call creates."""
    name = _called(call).removesuffix("MetricFamily")
    return name if name in SUFFIXES else None


def _prefix(call: ast.Call, parameters: set[str]) -> str | None:
    """Return what a call puts before one of the parameters to get the name of its metric."""
    match call.args:
        case [ast.Name(id=parameter), *_] if parameter in parameters:
            return ""
        case [ast.JoinedStr(values=[ast.Constant(value=prefix), ast.FormattedValue(value=ast.Name(id=parameter))]), *_]:
            return str(prefix) if parameter in parameters else None
    return None


def _literals(tree: ast.Module, argument: ast.expr) -> Iterator[str]:
    """Yield the texts that an argument may be: its own, or those of the table that its variable iterates over."""
    if isinstance(argument, ast.Constant):
        yield str(argument.value)
    elif isinstance(argument, ast.Name):
        constants = dict(_bindings(tree.body))
        for target, value in _bindings(ast.walk(tree)):
            if target == argument.id:
                named = [
                    constants[each.id] for each in ast.walk(value) if isinstance(each, ast.Name) if each.id in constants
                ]
                for table in (value, *named):
                    yield from (str(each.value) for each in ast.walk(table) if isinstance(each, ast.Constant))


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield each variable that an assignment or a loop binds, with the value or the table."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        else:
            continue
        yield from ((each.id, value) for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


if __name__ == "__main__":
    sys.exit(main())
