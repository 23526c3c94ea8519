"""numpy's .npy and .npz files without pickle, and zip archives (.npz, PyTorch's .pt), within limits of size.

The .npy format is NEP 1's: a magic string, the version, a header with type, order and shape, then the numbers.  The
declared shape is checked before the numbers are read.

A few kilobytes of zip can unpack to terabytes.  All declared sizes are added up before the first member is unpacked,
and reading a member stops at its declared size, so a false declaration has no effect.
"""

import ast
import io
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.documents import Path, RuleError, Violation

Numbers = npt.NDArray[Any]  # of any type for counts or numbers
NPY_START = b"\x93NUMPY"
MAX_DIMENSIONS = 4
MAX_HEADER_BYTES = 10_000
MAX_UNPACKED_BYTES = 1 << 31  # a trace of half a million tokens through 58 layers is 0.5 GB
MAX_MEMBERS = 100_000
ZIP_START = b"PK\x03\x04"
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,  # for names that are not text, among others
    NotImplementedError,
    RuntimeError,
    OverflowError,
    OSError,
    EOFError,
)


@dataclass(frozen=True)
class Archive:
    """The members of a zip archive, by name."""

    names: tuple[str, ...]
    member: Callable[[str], bytes]


def open_archive(data: bytes) -> Archive:
    """Check the directory of the archive; nothing is unpacked yet."""
    try:
        opened = zipfile.ZipFile(io.BytesIO(data))
    except _DAMAGED as error:
        raise RuleError([((), f"is not a whole zip archive: {error}")]) from error
    members = opened.infolist()
    RuleError.raise_for(_archive_violations(members))
    known = frozenset(info.filename for info in members)

    def member(name: str) -> bytes:
        if name not in known:
            raise RuleError([((name,), "is missing from the archive")])
        try:
            return opened.read(name)
        except _DAMAGED as error:
            raise RuleError([((name,), f"cannot be unpacked: {error}")]) from error

    return Archive(tuple(info.filename for info in members), member)


def _archive_violations(members: list[zipfile.ZipInfo]) -> Iterator[Violation]:
    if len(members) > MAX_MEMBERS:
        yield (), f"must hold at most {MAX_MEMBERS:,} files, got {len(members):,}"
    if len({info.filename for info in members}) < len(members):
        yield (), "must not hold two files of one name"
    if any(info.flag_bits & 0x1 for info in members):
        yield (), "must not be encrypted"
    if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in members):
        yield (), "must be stored or deflated, as PyTorch and numpy write them"
    unpacked = sum(info.file_size for info in members)
    if unpacked > MAX_UNPACKED_BYTES:
        yield (), f"must unpack to at most {MAX_UNPACKED_BYTES:,} bytes, declares {unpacked:,}"


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
