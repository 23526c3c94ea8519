"""Arrays of numbers in JSON and CSV: one row of experts per layer, all rows of one length."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fleet.documents import Path, RuleError, Violation
from placement.arrays import Floats, Ints

MAX_DEPTH = 3  # windows, layers, experts


def decoded(data: bytes) -> str:
    """Text in UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleError([((), f"is not text in UTF-8: byte {error.start} is wrong")]) from error


def read_json(data: bytes) -> Any:
    """JSON without repeated keys; NaN and Infinity pass here and are refused with their path later."""
    try:
        return json.loads(decoded(data), object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise RuleError(
            [((), f"is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})")]
        ) from error
    except RecursionError as error:
        raise RuleError([((), "is nested too deeply")]) from error
    except RuleError:
        raise
    except ValueError as error:  # Python's limit on digits
        raise RuleError([((), "holds a whole number with too many digits")]) from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise RuleError([((twice,), "is given twice")])
    return found


def nested_floats(value: Any, *, field: str) -> Floats:
    """[windows x] layers x experts from nested lists."""
    RuleError.raise_for(_list_violations(value, (field,), (int, float), "experts"))
    try:
        return np.array(value, dtype=np.float64)
    except OverflowError as error:
        raise RuleError([((field,), "must hold numbers below 1.8e308")]) from error


def nested_ints(value: Any, *, field: str) -> Ints:
    RuleError.raise_for(_list_violations(value, (field,), (int,), "slots"))
    try:
        return np.array(value, dtype=np.int64)
    except OverflowError as error:
        raise RuleError([((field,), "must hold numbers below 2^63")]) from error


def _list_violations(value: Any, path: Path, kinds: tuple[type, ...], columns: str) -> Iterator[Violation]:
    if not isinstance(value, list) or not value:
        yield (
            path,
            "must be a list of layers, each a list of numbers" if len(path) == 1 else "must be a list of numbers",
        )
        return
    if len(path) > MAX_DEPTH:
        yield path, f"must be a number: lists may be nested {MAX_DEPTH} deep"
        return
    if not isinstance(value[0], list):
        for at, item in enumerate(value):
            if type(item) not in kinds:
                yield (*path, at), f"must be a {'whole ' * (float not in kinds)}number, got {str(item)[:80]!r}"
        return
    for at, row in enumerate(value):
        yield from _list_violations(row, (*path, at), kinds, columns)
    lengths = [len(row) for row in value if isinstance(row, list)]
    noun = "layers" if value[0] and isinstance(value[0][0], list) else columns
    for at, length in enumerate(lengths):
        if length != lengths[0]:
            yield (*path, at), f"must hold as many {noun} as the first ({lengths[0]}), got {length}"


def read_csv(data: bytes) -> tuple[Floats, tuple[int, ...] | None]:
    """Tokens [windows, layers, experts], and the layers' numbers in the whole model where the file has them.

    One row per layer, one column per expert.  A header is optional; columns `window` and `layer` may come first.
    """
    rows = _rows(decoded(data))
    if not rows:
        raise RuleError([((), "is empty, expected one row of numbers per layer")])
    header = [cell.strip().casefold() for cell in rows[0][1]]
    leading = [name for name in header[:2] if name in ("window", "layer")]
    if leading or not _is_number(header[0]):
        rows = rows[1:]
    if leading not in ([], ["layer"], ["window", "layer"]):
        raise RuleError([(("header",), "must start with window, layer, or with layer, or with neither")])
    cells = _numbers(rows)
    if "window" in leading:
        return _windows(cells)
    if "layer" in leading:
        return cells[np.newaxis, :, 1:], _layers(cells[:, 0])
    return cells[np.newaxis], None


def _rows(text: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        return [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise RuleError([((), f"is not valid CSV: {error} (line {reader.line_num})")]) from error


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(rows: Sequence[tuple[int, list[str]]]) -> Floats:
    if not rows:
        raise RuleError([((), "must hold at least one row of numbers under its header")])
    RuleError.raise_for(_row_violations(rows))
    return np.array([[float(cell) for cell in row] for _, row in rows], dtype=np.float64)


def _row_violations(rows: Sequence[tuple[int, list[str]]]) -> Iterator[Violation]:
    first = len(rows[0][1])
    for line, row in rows:
        if len(row) != first:
            yield (f"line {line}",), f"must hold as many cells as the first row ({first}), got {len(row)}"
        for column, cell in enumerate(row):
            if not _is_number(cell):
                yield (f"line {line}", column), f"must be a number, got {cell[:80]!r}"


def _layers(column: Floats) -> tuple[int, ...]:
    if not np.isfinite(column).all() or (column != np.floor(column)).any() or (np.abs(column) > 1e6).any():
        raise RuleError([(("layer",), "must be whole numbers from 0 up")])
    return tuple(int(number) for number in column)


def _windows(cells: Floats) -> tuple[Floats, tuple[int, ...]]:
    """Rows in the order of their windows, each window with the same layers."""
    numbers, starts = np.unique(cells[:, 0], return_index=True)
    if (np.diff(starts) < 0).any() or (np.diff(cells[:, 0]) < 0).any():
        raise RuleError([(("window",), "must rise from row to row")])
    parts = np.split(cells, starts[1:])
    layers = _layers(parts[0][:, 1])
    for number, part in zip(numbers, parts, strict=True):
        if _layers(part[:, 1]) != layers:
            raise RuleError([(("window", f"{number:g}"), "must hold the same layers in the same order as the first")])
    return np.stack([part[:, 2:] for part in parts]), layers
