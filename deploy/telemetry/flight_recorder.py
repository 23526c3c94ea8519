"""Flight Recorder dumps in a folder: TORCH_NCCL_DEBUG_INFO_TEMP_FILE, or files that the job writes.

A dump is read once, when it has stopped growing.  A dump that is written again counts as new.
"""

from pathlib import Path
from typing import Final

from faults.observations import Observation
from faults.readers import ParseErrors
from faults.readers.flight import Dump, flights, parse_dump
from faults.readers.flight.dump import SOURCE
from faults.readers.job_map import JobMap
from faults.readers.lines import MAX_BYTES
from faults.readers.parse_errors import MalformedError
from faults.readers.recording_files import dump_rank

MAX_FILES: Final = 4096


class FlightSource:
    name = "flight"

    def __init__(self, folder: Path, *, job_map: JobMap, tally: ParseErrors, period_s: float = 1.0) -> None:
        self.period_s = period_s
        self._folder, self._places, self._tally = folder, job_map, tally
        self._growing: dict[Path, tuple[int, int]] = {}  # size and time of the last change
        self._read: dict[Path, tuple[int, int]] = {}

    def poll(self, now_s: float) -> list[Observation]:
        dumps: dict[int, Dump] = {}
        for path in sorted(self._folder.iterdir())[:MAX_FILES]:
            rank = dump_rank(path.name)
            if rank is not None:
                with self._tally.skipping(SOURCE):
                    content = self._content(path)
                    if content is not None:
                        dumps[rank] = parse_dump(content, tally=self._tally)
        return list(flights(dumps, at_s=now_s, job_map=self._places, tally=self._tally))

    def close(self) -> None:
        """Do nothing, because nothing stays open."""

    def _content(self, path: Path) -> bytes | None:
        """Return the content of a dump.  An unreadable dump is retried and does not affect the others."""
        try:
            if not path.is_file() or not self._complete(path):
                return None
            with path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except FileNotFoundError:  # removed since the folder was listed
            return None
        except OSError as error:
            self._read.pop(path, None)
            raise MalformedError("unreadable dump") from error

    def _complete(self, path: Path) -> bool:
        status = path.stat()
        version = status.st_size, status.st_mtime_ns
        if self._read.get(path) == version or not status.st_size:
            return False
        if self._growing.get(path) != version:
            self._growing[path] = version
            return False
        self._read[path] = self._growing.pop(path)
        return True
