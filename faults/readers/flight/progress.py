"""The progress of each rank from dumps: one `FlightProgress` per group, and one per direction of a point-to-point pair.

Collective numbers are equal on all ranks of a group, so they show which rank is behind.  Point-to-point numbers are
local to a rank.  A send completes together with its receive, so the unfinished ones of both ends pair up in order:
a pair's numbers count only these.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from faults.observations import FlightProgress, Observation
from faults.readers.flight.dump import SOURCE, Dump, Status, Stream
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import ParseErrors

DEFAULT_GROUP = "default_pg"  # torch's description of the group of all ranks

Ranks = tuple[int, ...]


def flights(
    dumps: Mapping[int, Dump], *, at_s: float, job_map: JobMap, groups: Iterable[Ranks] = (), tally: ParseErrors
) -> Iterator[Observation]:
    """Convert the dumps of some ranks, known at `at_s`.  `groups` are the known groups of the job."""
    members = _members(dumps, everybody=tuple(range(len(job_map.rank_node))), groups=tuple(groups))
    # The counters of a group with point-to-point operations count these too, from a number of their own on each rank.
    pairwise = {stream.group for dump in dumps.values() for stream in dump.streams if stream.pair}
    for rank, dump in sorted(dumps.items()):
        with tally.skipping(SOURCE):
            yield from [*_of_rank(dump, rank=rank, at_s=at_s, job_map=job_map, members=members, pairwise=pairwise)]


def _of_rank(
    dump: Dump, *, rank: int, at_s: float, job_map: JobMap, members: Mapping[str, Ranks], pairwise: set[str]
) -> Iterator[Observation]:
    node = job_map.node(rank)
    for stream in sorted(dump.streams, key=lambda stream: (stream.group_id, stream.group, stream.pair)):
        ranks = members.get(stream.group, ())
        if stream.pair:
            ranks = _pair_ranks(stream.pair, ranks)
            if not stream.unfinished or rank not in ranks:  # the peer of a coalesced operation is unknown
                continue
        values = _pair(stream, ranks, job_map) if stream.pair else _collectives(stream, ranks, job_map)
        yield Observation(at_s, node, values, rank=rank, peer=_peer(stream.pair, ranks, rank=rank, job_map=job_map))
    for name, status in _without_entries(dump):
        if name not in pairwise:
            yield Observation(at_s, node, _counted(name, status, members.get(name, ()), dump), rank=rank)


def _collectives(stream: Stream, ranks: Ranks, job_map: JobMap) -> FlightProgress:
    is_finished = not stream.unfinished
    return FlightProgress(
        group=stream.group,
        ranks=ranks,
        entered=stream.entered,
        started=max(stream.started, 0) if stream.backend == "nccl" else stream.started,
        finished=stream.entered if is_finished else max(stream.first_seq - 1, 0),
        op=stream.first_op,
        since_s=None if is_finished else job_map.time(stream.first_ns / 1e9),
        called_s=job_map.time(stream.newest_ns / 1e9),
        description=stream.description,
    )


def _pair(stream: Stream, ranks: Ranks, job_map: JobMap) -> FlightProgress:
    return FlightProgress(
        group=f"{stream.group} {ranks[0]}->{ranks[1]}",
        ranks=ranks,
        entered=stream.unfinished,
        started=stream.unfinished_started,
        finished=0,
        op=stream.first_op,
        since_s=job_map.time(stream.first_ns / 1e9),
        called_s=job_map.time(stream.newest_ns / 1e9),
        description=stream.description,
    )


def _without_entries(dump: Dump) -> Iterator[tuple[str, Status]]:
    """Return the counters of the groups without entries, by the group's name.

    Counters have the rank's own number of the group.  Torch gives numbers and names in the order of creation; where
    names are hashes, or contradict that order, the counters' groups are unknown.
    """
    recorded = {stream.group_id: stream.group for stream in dump.streams}
    numbers = sorted(dump.status)
    names = sorted((name for name in dump.members if name.isdecimal()), key=int)
    if not len(names) == len(dump.members) == len(numbers):
        return
    in_order = dict(zip(numbers, names, strict=True))
    if all(in_order.get(number, name) == name for number, name in recorded.items()):
        for number in numbers:
            if number not in recorded:
                yield in_order[number], dump.status[number]


def _counted(name: str, status: Status, ranks: Ranks, dump: Dump) -> FlightProgress:
    entered, finished = max(status.entered, 0), max(status.finished, 0)
    description = dump.descriptions.get(name, "")
    return FlightProgress(
        name, ranks, entered, status.started, min(finished, entered), None, None, description=description
    )


def _members(dumps: Mapping[int, Dump], *, everybody: Ranks, groups: Sequence[Ranks]) -> dict[str, Ranks]:
    """Return the ranks of each group by name: from the dump, otherwise the smallest of the job's groups that fits."""
    recorded: dict[str, Ranks] = {}
    observation: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        recorded |= {
            name: ranks for name, ranks in dump.members.items() if name and ranks and max(ranks) < len(everybody)
        }
        for stream in dump.streams:
            if stream.description == DEFAULT_GROUP:
                recorded.setdefault(stream.group, everybody)
            else:
                observation[stream.group].add(rank)
    for name, ranks in observation.items():
        fitting = [group for group in groups if ranks <= set(group)]
        if name not in recorded and fitting:
            recorded[name] = min(fitting, key=len)
    return recorded


def _pair_ranks(pair: tuple[int, ...], members: Ranks) -> Ranks:
    """Return the job's ranks of a pair, which dumps number within the group."""
    return tuple(members[index] for index in pair) if len(pair) == 2 and max(pair) < len(members) else ()


def _peer(pair: tuple[int, ...], ranks: Ranks, *, rank: int, job_map: JobMap) -> int | None:
    return job_map.node(ranks[1] if ranks[0] == rank else ranks[0]) if pair else None
