"""Zip archives (.npz and PyTorch's .pt) read only up to their declared size and our limit.

A few kilobytes of zip can unpack to terabytes.  All declared sizes are added up before the first member is unpacked,
and reading a member stops at its declared size, so a false declaration has no effect.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fleet.documents import RuleError, Violation

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
    RuleError.raise_for(_violations(members))
    known = frozenset(info.filename for info in members)

    def member(name: str) -> bytes:
        if name not in known:
            raise RuleError([((name,), "is missing from the archive")])
        try:
            return opened.read(name)
        except _DAMAGED as error:
            raise RuleError([((name,), f"cannot be unpacked: {error}")]) from error

    return Archive(tuple(info.filename for info in members), member)


def _violations(members: list[zipfile.ZipInfo]) -> Iterator[Violation]:
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
