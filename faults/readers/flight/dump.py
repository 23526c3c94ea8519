"""A Flight Recorder dump, reduced to the progress in each group.  Broken entries are counted and dropped."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from faults.readers.fields import MAX, MAX_INDEX, MAX_TEXT, Record, decimal, items, mapping, parse_json, text, whole
from faults.readers.lines import max_values, whole_document
from faults.readers.parse_errors import MalformedError, ParseErrors
from fleet.safe_pickle import PickleError, UnsafePickleError, read_pickle

SOURCE = "fr"
PICKLE = b"\x80"  # protocol 2 and later begin with it; JSON cannot
MAX_GROUPS = 65_536
MAX_MEMBERS = 2_000_000  # of all groups of a dump
NOT_TIMED = -1
COLLECTIVE: Final = ()
UNKNOWN_PAIR: Final = (-1,)
COALESCED: Final = "coalesced"
_PAIR = re.compile(r"(send|recv) (\d{1,6})(?:->|<-)(\d{1,6})")

Pair = tuple[int, ...]  # sender and receiver within the group; COLLECTIVE, or UNKNOWN_PAIR of coalesced operations


@dataclass(slots=True)
class Stream:
    """The operations of a dump that share their numbers: the collectives of a group, or those of a pair of ranks."""

    group_id: int  # the rank's own number of the group
    group: str
    description: str
    pair: Pair
    backend: str  # nccl, gloo, ...
    entered: int = 0
    started: int = NOT_TIMED  # the newest one that has started or ended
    newest_ns: int = 0  # time of the newest call
    unfinished: int = 0
    unfinished_started: int = 0
    first_seq: int = MAX  # of the first unfinished operation
    first_op: str | None = None  # all_reduce; "send 0->1" of a point-to-point operation
    first_ns: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """A group's progress by its own counters; NOT_TIMED if the backend keeps none."""

    entered: int
    started: int
    finished: int


@dataclass(frozen=True, slots=True)
class Dump:
    version: str
    streams: tuple[Stream, ...]
    status: Mapping[int, Status]  # by the rank's own number of the group
    members: Mapping[str, tuple[int, ...]]  # ranks by the group's name, if the dump has them
    descriptions: Mapping[str, str]  # by the group's name: TENSOR_MODEL_PARALLEL_GROUP
    first_ns: int  # its first call
    last_ns: int  # its last event

    @property
    def first_s(self) -> float:
        return self.first_ns / 1e9

    @property
    def last_s(self) -> float:
        return self.last_ns / 1e9


class _Entries:
    """Adds entries to the streams they belong to."""

    def __init__(self) -> None:
        self.streams: dict[tuple[int, str, Pair], Stream] = {}
        self._transfers: list[tuple[Stream, int, str, int, bool]] = []  # unfinished; seq, name, time, whether started
        self._coalesced: dict[tuple[int, int], tuple[bool, bool]] = {}  # by group and seq: whether started, finished
        self.first_ns = MAX
        self.last_ns = 0

    def add(self, found: Any) -> None:
        if type(found) is not dict:
            raise MalformedError("entry is no mapping")
        group, description = _names(found)
        point_to_point = found.get("is_p2p", False)
        if type(point_to_point) is not bool:
            raise MalformedError("is_p2p is no truth value")
        name = text(found, "profiling_name")
        state = text(found, "state")
        group_id = whole(found, "pg_id")
        seq = whole(found, "p2p_seq_id" if point_to_point else "collective_seq_id")
        called_ns = whole(found, "time_created_ns")
        # No time is None in a pickle, 0 in JSON.
        started_ns = found.get("time_discovered_started_ns") and whole(found, "time_discovered_started_ns")
        ended_ns = found.get("time_discovered_completed_ns") and whole(found, "time_discovered_completed_ns")
        self.first_ns = min(self.first_ns, called_ns)
        self.last_ns = max(self.last_ns, called_ns, started_ns or 0, ended_ns or 0)
        backend, _, op = name.rpartition(":")
        key = group_id, group, _pair(op) if point_to_point else COLLECTIVE
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = Stream(group_id, group, description, key[2], backend)
        stream.entered = max(stream.entered, seq)
        stream.newest_ns = max(stream.newest_ns, called_ns)
        is_started = state != "scheduled"
        if is_started:
            stream.started = max(stream.started, seq)
        # NCCL's watchdog marks complete operations and retires a timed-out one without the mark; gloo only retires.
        is_finished = state == "completed" or bool(ended_ns) or (found.get("retired") is True and backend != "nccl")
        if point_to_point and op == COALESCED:
            self._coalesced[group_id, seq] = is_started, is_finished
        elif is_finished:
            return
        elif point_to_point:
            self._transfers.append((stream, seq, op, called_ns, is_started))
        else:
            _add_unfinished(stream, seq, op, called_ns, is_started=is_started)

    def end(self) -> None:
        """Add the unfinished sends and receives: of a batch, only its own entry is marked as started and finished."""
        for stream, seq, op, called_ns, is_alone_started in self._transfers:
            is_started, is_finished = self._coalesced.get((stream.group_id, seq), (is_alone_started, False))
            if not is_finished:
                _add_unfinished(stream, seq, op, called_ns, is_started=is_started)


def _add_unfinished(stream: Stream, seq: int, op: str, called_ns: int, *, is_started: bool) -> None:
    stream.unfinished += 1
    stream.unfinished_started += is_started
    if seq < stream.first_seq:
        stream.first_seq, stream.first_op, stream.first_ns = seq, op, called_ns


def parse_dump(content: bytes | Iterable[bytes], *, tally: ParseErrors) -> Dump:
    """Parse a dump in JSON or as a pickle."""
    data = whole_document(content)
    found = parse_pickle(data) if data[:1] == PICKLE else parse_json(max_values(data))
    if not isinstance(found, dict):
        raise MalformedError("not a dump")
    version = text(found, "version")
    if version.partition(".")[0] != "2":
        raise MalformedError("dump of an unknown version")
    entries = _Entries()
    for each in items({"entries": [], **found}, "entries"):  # JSON omits an empty list
        try:
            entries.add(each)
        except MalformedError as error:  # no context manager: this runs once per entry
            tally.add(SOURCE, str(error))
    entries.end()
    members, descriptions = _groups(found, tally=tally)
    streams = tuple(entries.streams.values())
    first_ns = entries.first_ns if streams else 0
    return Dump(version, streams, _statuses(found, tally=tally), members, descriptions, first_ns, entries.last_ns)


def parse_pickle(data: bytes) -> Any:
    """Return the plain data of a pickle; raise MalformedError if the pickle is damaged or contains more than data."""
    try:
        return read_pickle(data)
    except UnsafePickleError as error:
        raise MalformedError("pickle that is more than data") from error
    except PickleError as error:
        raise MalformedError("broken pickle") from error


def _names(found: Record) -> tuple[str, str]:
    names = items(found, "process_group")
    if len(names) != 2 or not all(type(name) is str and len(name) <= MAX_TEXT for name in names):
        raise MalformedError("process_group is no pair of name and description")
    return names[0], names[1]


def _pair(op: str) -> Pair:
    match = _PAIR.fullmatch(op)
    if match is None:
        return UNKNOWN_PAIR
    here, there = int(match[2]), int(match[3])
    return (here, there) if match[1] == "send" else (there, here)


def _statuses(found: Record, *, tally: ParseErrors) -> dict[int, Status]:
    statuses = {}
    for key, value in list(mapping(found, "pg_status").items())[:MAX_GROUPS]:
        with tally.skipping(SOURCE):
            status = Status(
                *(_count(value, f"last_{stage}_collective") for stage in ("enqueued", "started", "completed"))
            )
            statuses[_decimal(key)] = status
    return statuses


def _count(status: Any, key: str) -> int:
    """Return a counter of a group, which is a text in some versions; -1 if the backend keeps none."""
    if not isinstance(status, dict):
        raise MalformedError("pg_status is no mapping of mappings")
    value = status.get(key, NOT_TIMED)
    if type(value) is str:
        value = NOT_TIMED if value == "-1" else _decimal(value)
    return NOT_TIMED if type(value) is int and value == NOT_TIMED else whole({key: value}, key)


def _decimal(value: Any) -> int:
    return decimal(value, digits=19, defect="pg_status has a number that is none")


def _groups(found: Record, *, tally: ParseErrors) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Return the members and descriptions of the groups, by name.

    Dumps of gloo have one group without a name, sometimes without ranks.
    """
    members: dict[str, tuple[int, ...]] = {}
    descriptions: dict[str, str] = {}
    left = MAX_MEMBERS
    for name, config in list(mapping(found, "pg_config").items())[:MAX_GROUPS]:
        with tally.skipping(SOURCE):
            if not isinstance(config, dict) or not isinstance(name, str):
                raise MalformedError("pg_config is no mapping of mappings")
            ranks = _ranks(config.get("ranks", []), maximum=left)
            left -= len(ranks)
            members[name] = ranks
            descriptions[name] = text(config, "desc", missing="")
    return members, descriptions


def _ranks(found: Any, *, maximum: int) -> tuple[int, ...]:
    """Parse a list of ranks, or its text."""
    if isinstance(found, str | list) and len(found) > maximum * (8 if isinstance(found, str) else 1):
        raise MalformedError("pg_config has too many ranks")
    ranks = parse_json(found) if isinstance(found, str) else found
    if not isinstance(ranks, list) or not all(type(rank) is int and 0 <= rank <= MAX_INDEX for rank in ranks):
        raise MalformedError("pg_config has no list of ranks")
    return tuple(ranks)
