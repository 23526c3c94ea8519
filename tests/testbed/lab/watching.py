"""Detects faults live inside the lab: it reads the lines of recorders and ranks as they are written."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from faults.detector import Detector, Job
from faults.diagnosis import Diagnosis
from faults.observations import Observation
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from faults.readers.lines import LineReader
from faults.readers.recording_files import line_reader


class Watch(Protocol):
    """Runs a detector beside a job."""

    def begin(self, *, folder: Path, started_s: float, job: Job) -> None: ...

    def turn(self) -> None:
        """Process the newest samples."""
        ...


class Tail:
    """Returns the new lines of a recording as observations."""

    def __init__(self, folder: Path, *, job_map: JobMap) -> None:
        self._folder, self._job_map = folder, job_map
        self._tally = ParseErrors()
        self._readers: dict[str, tuple[LineReader, int]] = {}

    @property
    def malformed(self) -> int:
        return self._tally.total

    def new(self) -> list[Observation]:
        """Return new observations in order of arrival."""
        return sorted((line for path in sorted(self._folder.iterdir()) for line in self._of(path)), key=_known_s)

    def _of(self, path: Path) -> Iterator[Observation]:
        if path.name not in self._readers:
            made = line_reader(path.name, job_map=self._job_map, tally=self._tally)
            if made is None:
                return
            self._readers[path.name] = (made, 0)
        reader, offset = self._readers[path.name]
        with path.open("rb") as file:
            file.seek(offset)
            chunk = file.read()
        self._readers[path.name] = (reader, offset + len(chunk))
        yield from reader.feed(chunk)


@dataclass(frozen=True, slots=True)
class Stamped:
    """Holds a diagnosis and its wall-clock time: seconds after the job's start."""

    diagnosis: Diagnosis
    said_s: float


@dataclass(slots=True)
class LiveWatch:
    """Feeds a detector and keeps each diagnosis once, with its wall-clock time."""

    make: Callable[[Job], Detector]
    diagnoses: list[Stamped] = field(default_factory=list)
    slowest_turn_s: float = 0.0
    malformed: int = 0
    _detector: Detector | None = None
    _tail: Tail | None = None
    _started_s: float = 0.0

    def begin(self, *, folder: Path, started_s: float, job: Job) -> None:
        self._detector, self._started_s = self.make(job), started_s
        self._tail = Tail(folder, job_map=JobMap(job.nodes, job.rank_node, zero_s=started_s))

    def turn(self) -> None:
        if self._detector is None or self._tail is None:
            raise RuntimeError("the detector has not started")
        began_s = time.perf_counter()
        for line in self._tail.new():
            self._detector.observe(line)
        for diagnosis in self._detector.evaluate(time.time() - self._started_s):
            if all(not _same(diagnosis, stamped.diagnosis) for stamped in self.diagnoses):
                self.diagnoses.append(Stamped(diagnosis, time.time() - self._started_s))
        self.malformed = self._tail.malformed
        self.slowest_turn_s = max(self.slowest_turn_s, time.perf_counter() - began_s)


def _known_s(observation: Observation) -> float:
    return observation.at_s


def _same(one: Diagnosis, other: Diagnosis) -> bool:
    keys = ("fault", "scope", "node", "peer", "switch")
    return all(getattr(one, key) == getattr(other, key) for key in keys)
