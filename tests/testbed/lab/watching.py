"""Live detection inside the lab: what the recorders and the ranks write is read as it comes, and judged at once."""

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
    """Who looks on while a job runs."""

    def begin(self, *, folder: Path, started_s: float, job: Job) -> None: ...

    def turn(self) -> None:
        """The recorders have looked."""
        ...


class Tail:
    """The lines that were added to a recording since the last time, as observations."""

    def __init__(self, folder: Path, *, job_map: JobMap) -> None:
        self._folder, self._job_map = folder, job_map
        self._tally = ParseErrors()
        self._readers: dict[str, tuple[LineReader, int]] = {}

    @property
    def malformed(self) -> int:
        return self._tally.total

    def new(self) -> list[Observation]:
        """In the order in which they were known."""
        return sorted((seen for path in sorted(self._folder.iterdir()) for seen in self._of(path)), key=_known_s)

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
    """A verdict, and when it came out by the wall clock: seconds after the job's start."""

    diagnosis: Diagnosis
    said_s: float


@dataclass(slots=True)
class LiveWatch:
    """Feeds a detector and keeps what it says, each verdict once, with when that really was."""

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
        """Take in what is new and judge."""
        if self._detector is None or self._tail is None:
            raise RuntimeError("the watch has not begun")
        began_s = time.perf_counter()
        for seen in self._tail.new():
            self._detector.observe(seen)
        for diagnosis in self._detector.evaluate(time.time() - self._started_s):
            if all(not _same(diagnosis, stamped.diagnosis) for stamped in self.diagnoses):
                self.diagnoses.append(Stamped(diagnosis, time.time() - self._started_s))
        self.malformed = self._tail.malformed
        self.slowest_turn_s = max(self.slowest_turn_s, time.perf_counter() - began_s)


def _known_s(observation: Observation) -> float:
    return observation.at_s


def _same(one: Diagnosis, other: Diagnosis) -> bool:
    """The same fault, told again."""
    keys = ("fault", "scope", "node", "peer", "switch")
    return all(getattr(one, key) == getattr(other, key) for key in keys)
