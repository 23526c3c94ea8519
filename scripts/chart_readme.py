"""The table of values in the chart's README, made from the `# --` comments of values.yaml.

`python -m scripts.chart_readme` writes it, `--check` compares it.  A `# --` comment describes the key
below it with everything under that key.  A key that neither has one nor holds only keys that do is an error, so the
table is complete.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

CHART = Path(__file__).parents[1] / "helm" / "fleetwright"
BEGIN = "<!-- values: made by scripts/chart_readme.py -->"
END = "<!-- end of values -->"


@dataclass(frozen=True, slots=True)
class Described:
    path: str
    default: str
    description: str


class UndescribedError(Exception):
    """A value has no `# --` comment."""


def described(text: str) -> list[Described]:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return list(_described(root, path=(), lines=text.splitlines(), values=yaml.safe_load(text)))


def with_table(readme: str, values: str) -> str:
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = [f"| `{row.path}` | `{row.default}` | {row.description} |" for row in described(values)]
    return "\n".join([f"{head}{BEGIN}", "| value | default | meaning |", "|---|---|---|", *rows, f"{END}{tail}"])


def main(arguments: list[str]) -> int:
    path = CHART / "README.md"
    present = path.read_text()
    wanted = with_table(present, (CHART / "values.yaml").read_text())
    if arguments == ["--check"]:
        if present != wanted:
            print("the chart's README is out of date: run python -m scripts.chart_readme", file=sys.stderr)
        return int(present != wanted)
    path.write_text(wanted)
    print("wrote the table of values")
    return 0


def _described(
    node: yaml.Node | None, *, path: tuple[str, ...], lines: list[str], values: object
) -> Iterator[Described]:
    if not isinstance(node, yaml.MappingNode) or not isinstance(values, dict) or not values:
        raise UndescribedError(f"{'.'.join(path)} has no `# --` comment in values.yaml")
    for key, value in node.value:
        here = (*path, key.value)
        if description := _comment_above(lines, key.start_mark.line):
            yield Described(".".join(here), json.dumps(values[key.value]), description)
        else:
            yield from _described(value, path=here, lines=lines, values=values[key.value])


def _comment_above(lines: list[str], number: int) -> str:
    """The `# --` comment that ends right above a line, or nothing."""
    collected: list[str] = []
    for line in reversed(lines[:number]):
        text = line.strip()
        if not text.startswith("#"):
            return ""
        collected.insert(0, text.removeprefix("# --").removeprefix("#").strip())
        if text.startswith("# --"):
            return " ".join(collected)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
