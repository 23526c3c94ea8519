"""Tables: columns that know how to show their values, and a layout that never loses or folds one.

A row is one line however narrow the terminal is: a terminal wraps a long line by itself, and what is read by eye today
is cut by `awk` tomorrow.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from api.cli.common.console import write

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and how a value below it is shown."""

    heading: str
    show: Callable[[Any], str] = str
    right: bool = False

    def cell(self, value: object) -> str:
        """A value as text; nothing is a dash."""
        return NOTHING if value is None else self.show(value)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and the values under them."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[object]]


def number(heading: str, *, decimals: int = 0) -> Column:
    """Numbers with equally many decimals, so that they stand under each other."""
    return Column(heading, show=lambda value: f"{value:,.{decimals}f}", right=True)


def moment(heading: str) -> Column:
    """Points in time, in UTC."""
    return Column(heading, show=_moment)


def print_table(table: Table) -> None:
    """A table on stdout: bold headings on a terminal, plain text elsewhere."""
    # Who sets NO_COLOR (https://no-color.org) wants no bold either.
    grid = Grid(box=None, pad_edge=False, header_style="" if os.environ.get("NO_COLOR") else "bold")
    for column in table.columns:
        grid.add_column(column.heading, justify="right" if column.right else "left", no_wrap=True)
    for row in table.rows:
        # Text: what users named is not markup.
        grid.add_row(*(Text(column.cell(value)) for column, value in zip(table.columns, row, strict=True)))
    console = Console(file=sys.stdout)
    console.width = Measurement.get(console, console.options.update(max_width=sys.maxsize), grid).maximum
    with console.capture() as captured:
        console.print(grid, crop=False)
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_fields(fields: Mapping[str, Any]) -> None:
    """What is known of one thing, a field a line."""
    print_table(Table((Column("field"), Column("value", show=in_words)), list(_flat(fields))))


def in_words(value: Any) -> str:
    """A value of JSON as a person would write it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(inner)}" for key, inner in value.items() if inner is not None)
    if isinstance(value, list | tuple):
        between = "; " if any(isinstance(inner, Mapping) for inner in value) else ", "
        return between.join(map(in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"
    return NOTHING if value is None else str(value)


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Fields that hold something, those of an inner thing under its name: `application.kind`."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None and value != []:
            yield f"{prefix}{name}", value


def _moment(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
