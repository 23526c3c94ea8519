"""Columns of a CSV text as arrays: vectorised where all cells are valid, cell by cell to report errors.

The header's names compare without case.  Errors name the text, the line and the column.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Self

import numpy as np
import numpy.typing as npt

from fleet.documents import MAX_PROBLEMS
from fleet.errors import DocumentError, Problem

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CsvTable:
    name: str
    header: Sequence[str]
    lines: Sequence[tuple[int, Sequence[str]]]  # line number and cells; without empty lines

    @classmethod
    def read(cls, text: str, *, name: str, max_rows: int) -> Self:
        """Read at most one row more than `max_rows`, so that the caller can report too many."""
        rows = csv.reader(io.StringIO(text))
        header = names_of(next(rows, []))
        return cls(name, header, [(rows.line_num, row) for row in islice(rows, max_rows + 1) if row])

    def require_cells(self, columns: Iterable[int]) -> None:
        """Refuse rows that end before one of the columns."""
        needed = max(columns) + 1
        self.refuse(
            Problem("", f"has {len(row)} columns, expected at least {needed}", line)
            for line, row in self.lines
            if len(row) < needed
        )

    def numbers(self, column: int, fits: Callable[[Floats], npt.NDArray[np.bool_]], *, expected: str) -> Floats:
        """Return a column of numbers that all fit."""
        cells = [row[column] for _, row in self.lines]
        found = _numbers(cells)
        if found is not None and fits(found).all():
            return found
        self.refuse(
            Problem(self.header[column], f"expected {expected}, got {cell!r}", line)
            for (line, _), cell in zip(self.lines, cells, strict=True)
            if (number := _numbers([cell])) is None or not fits(number).all()
        )
        raise AssertionError("the column has an invalid cell, but no cell is invalid")

    def times(self, column: int, *, unit: str) -> tuple[Floats, datetime | None]:
        """Return numbers as they are; or the seconds since the earliest date, and that date in its own zone."""
        cells = [row[column].strip() for _, row in self.lines]
        if (numbers := _numbers(cells)) is not None and np.isfinite(numbers).all():
            return numbers, None
        moments = [_moment(cell) for cell in cells]
        self.refuse(
            Problem(self.header[column], f"expected {unit} or a time in ISO 8601, got {cell!r}", line)
            for (line, _), cell, moment in zip(self.lines, cells, moments, strict=True)
            if moment is None
        )
        known = [moment for moment in moments if moment is not None]
        first = min(known)
        return np.array([(moment - first).total_seconds() for moment in known]), first

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raise DocumentError with the first problems, if there are any."""
        if found := list(islice(problems, MAX_PROBLEMS)):
            raise DocumentError(name=self.name, problems=found)


def names_of(cells: Iterable[str]) -> list[str]:
    """Return the names of a header's cells."""
    return [cell.strip().lstrip("\ufeff").casefold() for cell in cells]


def _numbers(cells: Sequence[str]) -> Floats | None:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    """Parse a time in ISO 8601; a time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
