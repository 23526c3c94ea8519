"""A recording folder as one ordered stream.  Schema: docs/explanation/faults/observations.md

Observations are ordered by when they became known and given in seconds after the job's t_go, so a replay has exactly
the information of a live monitor at each time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from operator import attrgetter

from faults.detector import Job
from faults.observation_jsonl import KINDS
from faults.observations import Observation
from faults.readers.flight import Dump, flights, parse_dump
from faults.readers.job_map import JobMap
from faults.readers.lines import whole_document
from faults.readers.parse_errors import MalformedError, ParseErrors
from faults.readers.recording_files import dump_rank, line_reader
from faults.readers.run import RUN, Run, parse_run
from fleet.documents import RuleError

Content = bytes | Iterable[bytes]  # of a file: whole, or in chunks of any size

DAY_S = 86_400.0
MAX_DURATION_S = 30 * DAY_S  # of a recording without a duration
DUMPED_BEFORE_END_S = 1.5  # the schema's: dumps are requested that long before the run ends
MAX_RUN_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Recording:
    """The observations of a recorded job, in the order in which they became known."""

    job: Job
    t_go_s: float  # on the recording's clock; all other times count from it
    observations: tuple[Observation, ...]
    malformed: Mapping[str, int]  # number of skipped records by defect
    hosts: tuple[str | None, ...] = ()  # of the ranks, where the files name them
    notes: tuple[str, ...] = ()  # for people: errors in kernel logs, ranks without data in NCCL RAS

    def host_of(self, rank: int | None) -> str | None:
        return self.hosts[rank] if rank is not None and rank < len(self.hosts) else None


def read(files: Mapping[str, Content]) -> Recording:
    """Read a folder's files by name.  Only `run.json` must be valid; a RuleError names its defect."""
    tally = ParseErrors()
    if RUN not in files:
        raise RuleError([((), f"holds no {RUN}, expected the folder of a recording")])
    run = parse_run(_document(files[RUN]))
    dumps = list(_dumps(files, tally=tally))
    # Without a t_go, the first operation in any dump.
    t_go_s = min((dump.first_s for _, dump in dumps), default=0.0) if run.t_go_s is None else run.t_go_s
    latest_s = DAY_S + (MAX_DURATION_S if run.duration_s is None else run.duration_s)
    job = run.job
    job_map = JobMap(job.nodes, job.rank_node, zero_s=t_go_s, earliest_s=-DAY_S, latest_s=latest_s)
    found = [
        observation for name in sorted(files) for observation in _lines(name, files[name], job_map=job_map, tally=tally)
    ]
    dumps = list(_of_the_job(dumps, job_map=job_map, t_go_s=t_go_s, tally=tally))
    dumped_s = _dumped_s(run, dumps, t_go_s=t_go_s, job_map=job_map, tally=tally)
    requested = [
        flights(each, at_s=dumped_s, job_map=job_map, groups=job.groups, tally=tally) for each in _rounds(dumps)
    ]
    found += dict.fromkeys(chain.from_iterable(requested))
    return Recording(job, t_go_s, tuple(in_order(found, tally=tally)), tally.counts())


def _document(content: Content) -> bytes:
    try:
        return whole_document(content, max_bytes=MAX_RUN_BYTES)
    except MalformedError as error:
        raise RuleError([((), f"{RUN} is {error}, expected at most {MAX_RUN_BYTES:,} bytes")]) from error


def _lines(name: str, content: Content, *, job_map: JobMap, tally: ParseErrors) -> Iterable[Observation]:
    reader = line_reader(name, job_map=job_map, tally=tally)
    if reader is None:
        return ()
    return reader.all((content,) if isinstance(content, bytes) else content)


def _dumps(files: Mapping[str, Content], *, tally: ParseErrors) -> Iterator[tuple[int, Dump]]:
    for name in sorted(files):
        rank = dump_rank(name)
        if rank is not None:
            with tally.skipping("fr"):
                yield rank, parse_dump(files[name], tally=tally)


def _rounds(dumps: Iterable[tuple[int, Dump]]) -> Iterator[dict[int, Dump]]:
    """Return rounds with at most one dump of each rank: ranks may have dumped with stack traces and without."""
    left = list(dumps)
    while left:
        taken: dict[int, Dump] = {}
        rest = []
        for rank, dump in left:
            if rank in taken:
                rest.append((rank, dump))
            else:
                taken[rank] = dump
        yield taken
        left = rest


def _of_the_job(
    dumps: Iterable[tuple[int, Dump]], *, job_map: JobMap, t_go_s: float, tally: ParseErrors
) -> Iterator[tuple[int, Dump]]:
    """Leave out dumps outside the job's time: another clock's would be centuries late."""
    for rank, dump in dumps:
        with tally.skipping("fr"):
            job_map.near(dump.last_s - t_go_s)
            yield rank, dump


def _dumped_s(
    run: Run, dumps: Iterable[tuple[int, Dump]], *, t_go_s: float, job_map: JobMap, tally: ParseErrors
) -> float:
    """Return the time of the dumps.  A dump has no time of its own: the last event in any of them is a lower bound."""
    known_s = max((dump.last_s - t_go_s for _, dump in dumps), default=0.0)
    if run.dumped_s is not None:
        with tally.skipping("run"):
            known_s = max(known_s, job_map.near(run.dumped_s - t_go_s))
    elif run.t_go_s is not None and run.duration_s is not None:
        known_s = max(known_s, run.duration_s - DUMPED_BEFORE_END_S)
    return known_s


def in_order(found: list[Observation], *, tally: ParseErrors) -> Iterator[Observation]:
    """Sort by the time of knowledge, then by kind and place.

    Duplicates are dropped.
    """
    found.sort(key=attrgetter("at_s"))
    for _, together in groupby(found, key=attrgetter("at_s")):
        batch = list(together)
        once = dict.fromkeys(batch)
        if len(once) < len(batch):
            tally.add("any", "written twice", times=len(batch) - len(once))
        yield from once if len(once) == 1 else _placed(once)


def _placed(together: Iterable[Observation]) -> list[Observation]:
    found = sorted(together, key=_place)
    if any(_place(one) == _place(other) for one, other in pairwise(found)):
        return sorted(found, key=lambda observation: (_place(observation), repr(observation.values)))
    return found


def _place(observation: Observation) -> tuple[int, int, int, int]:
    _, node, values, rank, peer = observation
    return _KIND_ORDER[type(values)], node, -1 if rank is None else rank, -1 if peer is None else peer


_KIND_ORDER = {kind: index for index, kind in enumerate(KINDS.values())}  # a poll precedes its sockets
