"""Opens a recording, or the files that a stopped job left, for the readers, which are pure.

Recordings and kernel logs are read in pieces, so their size does not matter; what a stopped job left besides is read
whole.  Many dumps are parsed in several processes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from api.cli.common.errors import CommandError, InputError
from deploy.common.executors import Processes
from faults.readers import ParseErrors, Recording, read, read_loose
from faults.readers.flight import Dump, parse_dump
from faults.readers.flight.dump import SOURCE
from faults.readers.loose_files import HEAD_BYTES, FileKind, LooseFile, kind_of, rank_of_dump
from faults.readers.parse_errors import MalformedError
from faults.readers.recording_files import is_recorded
from faults.readers.run import RUN
from fleet.documents import RuleError, dotted

CHUNK_BYTES = 1 << 18
EXPECTED = (
    "expected the folder of a recording (run.json and the files of `fleetwright faults record`), or what a stopped "
    "job left: Flight Recorder dumps, NCCL RAS or Inspector output"
)
MAX_FILES = 65_536
DUMPS_PER_TASK = 64  # fewer are parsed here: to start a process takes as long

Parsed = tuple[list[tuple[int, Dump]], Mapping[str, int]]  # dumps by rank, and the defects in them


def open_recording(path: Path) -> Recording:
    """Open a folder; an invalid one gives one error with the file and the expected contents."""
    if not path.is_dir():
        raise _refused(path, "is not a folder" if path.exists() else "does not exist")
    try:
        files = sorted(file for file in path.iterdir() if file.is_file())[:MAX_FILES]
        if any(file.name == RUN for file in files):
            return read({file.name: _chunks(file) for file in files if is_recorded(file.name)})
        return _open_loose(files)
    except RuleError as error:
        raise InputError(_message(path, error)) from error
    except OSError as error:
        raise _refused(Path(error.filename or path), error.strerror or "cannot be read") from error


def _open_loose(files: Sequence[Path]) -> Recording:
    kinds = {file: kind_of(file.name, _head(file)) for file in files}
    paths = [file for file, kind in kinds.items() if kind is FileKind.DUMP]
    tally = ParseErrors()
    dumps: list[tuple[int, Dump]] = []
    members: dict[tuple[int, ...], tuple[int, ...]] = {}  # each once: every rank of a group lists all of them
    for parsed, defects in _parsed(paths):
        dumps += [
            (rank, replace(dump, members={name: members.setdefault(each, each) for name, each in dump.members.items()}))
            for rank, dump in parsed
        ]
        tally.include(defects)
    others = (
        LooseFile(file.name, kind, _chunks(file))
        for file, kind in kinds.items()
        if kind is not None and kind is not FileKind.DUMP
    )
    return read_loose(dumps, others, tally=tally)


def _parsed(paths: Sequence[Path]) -> Iterator[Parsed]:
    tasks = [paths[first : first + DUMPS_PER_TASK] for first in range(0, len(paths), DUMPS_PER_TASK)]
    done = dict(Processes().run(_parse, tasks))
    return (done[position] for position in sorted(done))


def _parse(paths: Sequence[Path]) -> Parsed:
    tally = ParseErrors()
    dumps = []
    for path in paths:
        rank = rank_of_dump(path.name)
        with tally.skipping(SOURCE):
            if rank is None:
                raise MalformedError("dump without a rank in its name")
            dumps.append((rank, parse_dump(_chunks(path), tally=tally)))
    return dumps, dict(tally.counts())


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError:  # not readable for this user
        return b"\0"


def _message(path: Path, error: RuleError) -> str:
    place, message = error.violations[0]
    if not (path / RUN).is_file():
        return f"{path}: {message}; {EXPECTED}"
    return f"{path / RUN}: {dotted(place)}: {message}" if place else f"{path / RUN}: {message}"


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _refused(path: Path, message: str) -> CommandError:
    return InputError(f"{path}: {message}, {EXPECTED}")
