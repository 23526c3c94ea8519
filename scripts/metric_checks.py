"""Check that every metric named in alerts, dashboards and documentation is registered by a product process.

    python -m scripts.metric_checks

A name is registered when a product module holds it as a literal: `Counter("fleetwright_x", ...)`.  A wrapper such as
`def gauge(name): return Gauge(f"fleetwright_row_{name}", ...)` registers its prefix with the literals that the same
module passes to it.  A module that no other product module imports registers nothing.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.repo_checks import ROOT

PACKAGES = ("fleet", "planner", "placement", "power", "faults", "deploy", "api", "fleetwright")
NAME = re.compile(r"\bfleetwright_[a-z0-9_]*[a-z0-9]\b")
SUFFIXES = ("_total", "_bucket", "_count", "_sum", "_created", "_info")
# Names in the documentation that resemble metric names.
NOT_METRICS = frozenset({"fleetwright_net"})


def main() -> int:
    registered = registered_metrics(ROOT)
    unknown = [
        f"{path.relative_to(ROOT)}:{line}: {name} is registered by no process"
        for path, line, name in used_metrics(ROOT)
        if base_name(name) not in registered
    ]
    for text in unknown:
        print(text)
    print(f"{len(unknown)} unknown metrics" if unknown else f"{len(registered)} metrics registered, none unknown")
    return 1 if unknown else 0


def base_name(name: str) -> str:
    """Strip what exposition adds to a family's name."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def used_metrics(root: Path) -> Iterator[tuple[Path, int, str]]:
    files = root / "helm" / "fleetwright" / "files"
    pages = [root / "README.md", root / "helm" / "fleetwright" / "README.md", *sorted((root / "docs").rglob("*.md"))]
    recorded = set(re.findall(r"record:\s*(\S+)", (files / "alerts.yaml").read_text(encoding="utf-8")))
    for path in (files / "alerts.yaml", *sorted((files / "dashboards").glob("*.json")), *pages):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for name in NAME.findall(line):
                if name not in recorded and name not in NOT_METRICS:
                    yield path, number, name


def registered_metrics(root: Path) -> set[str]:
    trees = {
        ".".join(path.relative_to(root).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    imported = set(_imported(trees.values()))
    return {
        base_name(name)
        for module, tree in trees.items()
        if module in imported or module.endswith("__main__")
        for name in _registered(tree)
    }


def _imported(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Yield every module that some module imports, also those named as strings for late import."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
                yield node.value


def _registered(tree: ast.Module) -> Iterator[str]:
    """Yield the names that one module holds as literals, and those that it passes to its wrappers."""
    wrappers = wrapper_prefixes(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
            yield node.value
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in wrappers:
                yield wrappers[called] + str(node.args[0].value)


def wrapper_prefixes(tree: ast.Module) -> dict[str, str]:
    """The functions of a module that register metrics, with the prefix that each puts before a name."""
    return {
        function.name: prefix
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for prefix in _prefixes(function)
    }


def _prefixes(function: ast.FunctionDef) -> Iterator[str]:
    names = {argument.arg for argument in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
            prefix, rest = node.values
            if (
                isinstance(prefix, ast.Constant)
                and str(prefix.value).startswith("fleetwright_")
                and isinstance(rest, ast.FormattedValue)
                and isinstance(rest.value, ast.Name)
                and rest.value.id in names
            ):
                yield str(prefix.value)


if __name__ == "__main__":
    sys.exit(main())
