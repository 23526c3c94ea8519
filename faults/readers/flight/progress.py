"""The progress of each rank from dumps: one `FlightProgress` per group, and one per direction of a point-to-point pair.

Collective numbers are equal on all ranks of a group, so they show which rank is behind.  Point-to-point numbers are
local to a rank and show only unfinished operations.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from faults.observations import FlightProgress, Observation
from faults.readers.flight.dump import NOT_TIMED, SOURCE, Dump, Entry
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import ParseErrors

DEFAULT_GROUP = "default_pg"  # torch's description of the group of all ranks
_PAIR = re.compile(r"(send|recv) (\d{1,6})(?:->|<-)(\d{1,6})")

Ranks = tuple[int, ...]


def flights(
    dumps: Mapping[int, Dump], *, at_s: float, job_map: JobMap, groups: Iterable[Ranks] = (), tally: ParseErrors
) -> Iterator[Observation]:
    """Convert the dumps of some ranks, known at `at_s`.  `groups` are the known groups of the job."""
    members = _members(dumps, everybody=tuple(range(len(job_map.rank_node))), groups=tuple(groups))
    for rank, dump in sorted(dumps.items()):
        with tally.skipping(SOURCE):
            yield from [*_of_rank(dump, rank=rank, at_s=at_s, job_map=job_map, members=members)]


def _of_rank(
    dump: Dump, *, rank: int, at_s: float, job_map: JobMap, members: Mapping[str, Ranks]
) -> Iterator[Observation]:
    node = job_map.node(rank)
    for (_, group, pair), found in groupby(sorted(dump.entries, key=_stream), key=_stream):
        entries = list(found)
        ranks = _pair_ranks(pair, members.get(group, ())) if entries[0].point_to_point else members.get(group, ())
        values = _flight(entries, name=_name(group, pair, ranks), ranks=ranks, job_map=job_map)
        yield Observation(at_s, node, values, rank=rank, peer=_peer(pair, ranks, rank=rank, job_map=job_map))
    recorded = {entry.group_id for entry in dump.entries}
    for group_id, status in sorted(dump.status.items()):
        if group_id not in recorded:
            entered, finished = max(status.entered, 0), max(status.finished, 0)
            values = FlightProgress(str(group_id), (), entered, status.started, min(finished, entered), None, None)
            yield Observation(at_s, node, values, rank=rank)


def _stream(entry: Entry) -> tuple[int, str, tuple[int, ...]]:
    """Return the scope of an entry's number: its group, or for point-to-point operations the pair, sender first."""
    if not entry.point_to_point:
        return entry.group_id, entry.group, ()
    match = _PAIR.fullmatch(entry.op)
    if match is None:
        return entry.group_id, entry.group, (-1,)
    here, there = int(match[2]), int(match[3])
    return entry.group_id, entry.group, (here, there) if match[1] == "send" else (there, here)


def _flight(entries: Sequence[Entry], *, name: str, ranks: Ranks, job_map: JobMap) -> FlightProgress:
    entered = max(entry.seq for entry in entries)
    open_ones = [entry for entry in entries if not entry.finished]
    first = min(open_ones, key=lambda entry: entry.seq, default=None)
    timed = [entry.seq for entry in entries if entry.state != "scheduled"]
    return FlightProgress(
        group=name,
        ranks=ranks,
        entered=entered,
        started=max(timed, default=0) if timed or entries[0].backend == "nccl" else NOT_TIMED,
        finished=entered if first is None else max(first.seq - 1, 0),
        op=None if first is None else first.op,
        since_s=None if first is None else job_map.time(first.called_ns / 1e9),
    )


def _members(dumps: Mapping[int, Dump], *, everybody: Ranks, groups: Sequence[Ranks]) -> dict[str, Ranks]:
    """Return the ranks of each group by name: from the dump, otherwise the smallest of the job's groups that fits."""
    recorded: dict[str, Ranks] = {}
    observation: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        recorded |= {
            name: ranks for name, ranks in dump.members.items() if name and ranks and max(ranks) < len(everybody)
        }
        for entry in dump.entries:
            if entry.desc == DEFAULT_GROUP:
                recorded.setdefault(entry.group, everybody)
            else:
                observation[entry.group].add(rank)
    for name, ranks in observation.items():
        fitting = [group for group in groups if ranks <= set(group)]
        if name not in recorded and fitting:
            recorded[name] = min(fitting, key=len)
    return recorded


def _pair_ranks(pair: tuple[int, ...], members: Ranks) -> Ranks:
    """Return the job's ranks of a pair, which dumps number within the group."""
    return tuple(members[index] for index in pair) if len(pair) == 2 and max(pair) < len(members) else ()


def _name(group: str, pair: tuple[int, ...], ranks: Ranks) -> str:
    if not pair:
        return group
    return f"{group} {ranks[0]}->{ranks[1]}" if ranks else f"{group} p2p {'->'.join(map(str, pair))}"


def _peer(pair: tuple[int, ...], ranks: Ranks, *, rank: int, job_map: JobMap) -> int | None:
    if not pair or rank not in ranks:
        return None
    return job_map.node(ranks[1] if ranks[0] == rank else ranks[0])
