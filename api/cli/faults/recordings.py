"""Opens a recording folder for the reader, which is pure.  Files are read in pieces, so their size does not matter."""

from collections.abc import Iterator
from pathlib import Path

from api.cli.common.errors import CommandError, InputError
from faults.readers import Recording, read
from faults.readers.recording_files import is_recorded
from faults.readers.run import RUN
from fleet.documents import RuleError, dotted

CHUNK_BYTES = 1 << 18
EXPECTED = "expected the folder of a recording: run.json and the files of `fleetwright faults record`"


def open_recording(path: Path) -> Recording:
    """Open a folder as a recording; an invalid folder gives one error with the file and the expected contents."""
    if not path.is_dir():
        raise _refused(path, "is not a folder" if path.exists() else "does not exist")
    try:
        names = sorted(file.name for file in path.iterdir() if is_recorded(file.name) and file.is_file())
        return read({name: _chunks(path / name) for name in names})
    except RuleError as error:
        raise InputError(_message(path, error)) from error
    except OSError as error:
        raise _refused(Path(error.filename or path), error.strerror or "cannot be read") from error


def _message(path: Path, error: RuleError) -> str:
    place, message = error.violations[0]
    if not (path / RUN).is_file():
        return f"{path}: {message}"
    return f"{path / RUN}: {dotted(place)}: {message}" if place else f"{path / RUN}: {message}"


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _refused(path: Path, message: str) -> CommandError:
    return InputError(f"{path}: {message}, {EXPECTED}")
