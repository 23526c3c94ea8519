"""Prints tables that never wrap or truncate a value.

Each row is one line, so that `awk` can read it; a terminal wraps long lines by itself.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from api.cli.common.console import write

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Column:
    heading: str
    show: Callable[[Any], str] = str
    right: bool = False
    of: str | Callable[[Any], object] = ""  # the attribute of an item that the column shows, or a function of the item

    def value(self, item: object) -> object:
        return self.of(item) if callable(self.of) else attrgetter(self.of)(item)

    def cell(self, value: object) -> str:
        """Format a value; None is a dash."""
        return NOTHING if value is None else self.show(value)


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[Column]
    rows: Iterable[Sequence[object]]


def table_of(columns: Sequence[Column], items: Iterable[object]) -> Table:
    """Return a row per item, with the value of each column."""
    return Table(columns, ([column.value(item) for column in columns] for item in items))


def number(heading: str, *, decimals: int = 0, of: str | Callable[[Any], object] = "") -> Column:
    """Format numbers with a fixed count of decimals, right-aligned."""
    return Column(heading, show=lambda value: f"{value:,.{decimals}f}", right=True, of=of)


def moment(heading: str, *, of: str | Callable[[Any], object] = "") -> Column:
    """Format times in UTC."""
    return Column(heading, show=_moment, of=of)


def print_table(table: Table) -> None:
    """Print a table on stdout: bold headings on a terminal, plain text elsewhere."""
    # NO_COLOR (https://no-color.org) disables bold text too.
    grid = Grid(box=None, pad_edge=False, header_style="" if os.environ.get("NO_COLOR") else "bold")
    for column in table.columns:
        grid.add_column(column.heading, justify="right" if column.right else "left", no_wrap=True)
    for row in table.rows:
        # Text, because names of users are no markup.
        grid.add_row(*(Text(column.cell(value)) for column, value in zip(table.columns, row, strict=True)))
    console = Console(file=sys.stdout)
    console.width = Measurement.get(console, console.options.update(max_width=sys.maxsize), grid).maximum
    with console.capture() as captured:
        console.print(grid, crop=False)
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_fields(fields: Mapping[str, Any]) -> None:
    print_table(Table((Column("field"), Column("value", show=format_value)), list(_flat(fields))))


def format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(inner)}" for key, inner in value.items() if inner is not None)
    if isinstance(value, list | tuple):
        between = "; " if any(isinstance(inner, Mapping) for inner in value) else ", "
        return between.join(map(format_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"
    return NOTHING if value is None else str(value)


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields with a value; nested fields have dotted names: `application.kind`."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None and value != []:
            yield f"{prefix}{name}", value


def _moment(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
