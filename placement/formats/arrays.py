"""numpy's .npy and .npz files, without pickle and with a check of the declared shape.

The format is NEP 1's: a magic string, the version, a header with type, order and shape, then the numbers.
"""

import ast
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.documents import Path, RuleError, Violation
from placement.formats.archives import MAX_UNPACKED_BYTES, Archive

Numbers = npt.NDArray[Any]  # of any type for counts or numbers
NPY_START = b"\x93NUMPY"
MAX_DIMENSIONS = 4
MAX_HEADER_BYTES = 10_000


def read_npy(data: bytes, *, path: Path = ()) -> Numbers:
    try:
        shape, by_column, dtype, start = _header(data)
    except (ValueError, TypeError, SyntaxError, KeyError, RecursionError, MemoryError) as error:
        raise RuleError([(path, f"is not a whole .npy array: {error}")]) from error
    RuleError.raise_for(_violations(shape, dtype, len(data) - start, path))
    flat = np.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=start)
    return flat.reshape(shape, order="F" if by_column else "C")


def read_member(archive: Archive, key: str) -> Numbers:
    return read_npy(archive.member(f"{key}.npy"), path=(key,))


def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether columns come first, type, and the start of the numbers."""
    width = {b"\x01\x00": 2, b"\x02\x00": 4}.get(data[6:8], 0)
    start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    if not data.startswith(NPY_START) or not width or not width < start - 8 <= MAX_HEADER_BYTES or start > len(data):
        raise ValueError("its version or the length of its header is not valid for an array of numbers")
    header = ast.literal_eval(data[8 + width : start].decode("latin-1").strip())
    match header:
        case {"descr": str(descr), "fortran_order": bool(by_column), "shape": tuple(shape), **others} if not others:
            pass
        case _:
            raise ValueError("its header must hold descr, fortran_order and shape, of plain numbers")
    if not all(type(size) is int for size in shape):
        raise ValueError("its shape must be whole numbers")
    return shape, by_column, np.dtype(descr), start


def _violations(shape: tuple[int, ...], dtype: np.dtype[Any], capacity: int, path: Path) -> Iterator[Violation]:
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        yield path, f"must hold whole or floating-point numbers of at most 8 bytes, got {dtype}"
        return
    if len(shape) > MAX_DIMENSIONS or min(shape, default=1) < 0:
        yield path, f"must have at most {MAX_DIMENSIONS} dimensions of size 0 or more, got {shape}"
        return
    needed = math.prod(shape) * dtype.itemsize
    if needed > MAX_UNPACKED_BYTES:
        yield path, f"must be at most {MAX_UNPACKED_BYTES:,} bytes, declares {needed:,}"
    elif needed != capacity:
        yield path, f"must hold {needed:,} bytes for shape {shape}, got {capacity:,}"
