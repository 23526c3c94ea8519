"""A Flight Recorder dump as typed entries.  Broken entries are counted and dropped."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from faults.readers.fields import MAX_INDEX, Record, decimal, items, mapping, parse_json, text, whole
from faults.readers.lines import max_values, whole_document
from faults.readers.parse_errors import MalformedError, ParseErrors
from fleet.safe_pickle import PickleError, UnsafePickleError, read_pickle

SOURCE = "fr"
PICKLE = b"\x80"  # protocol 2 and later begin with it; JSON cannot
MAX_GROUPS = 65_536
NOT_TIMED = -1


@dataclass(frozen=True, slots=True)
class Entry:
    group_id: int  # the rank's own number of the group
    group: str
    desc: str
    seq: int  # of collectives, or of point-to-point operations
    point_to_point: bool
    backend: str  # nccl, gloo, ...
    op: str  # all_reduce; "send 0->1" of a point-to-point operation
    called_ns: int
    state: str  # scheduled, started, completed
    finished: bool


@dataclass(frozen=True, slots=True)
class Status:
    """A group's progress by its own counters; NOT_TIMED if the backend keeps none."""

    entered: int
    started: int
    finished: int


@dataclass(frozen=True, slots=True)
class Dump:
    version: str
    entries: tuple[Entry, ...]
    status: Mapping[int, Status]  # by the rank's own number of the group
    members: Mapping[str, tuple[int, ...]]  # ranks by the group's name, if the dump has them
    last_ns: int  # its last event

    @property
    def first_s(self) -> float:
        return min((entry.called_ns for entry in self.entries), default=0) / 1e9

    @property
    def last_s(self) -> float:
        return self.last_ns / 1e9


def parse_dump(content: bytes | Iterable[bytes], *, tally: ParseErrors) -> Dump:
    """Parse a dump in JSON or as a pickle."""
    data = whole_document(content)
    found = parse_pickle(data) if data[:1] == PICKLE else parse_json(max_values(data))
    if not isinstance(found, dict):
        raise MalformedError("not a dump")
    version = text(found, "version")
    if version.partition(".")[0] != "2":
        raise MalformedError("dump of an unknown version")
    entries = []
    last_ns = 0
    for each in items({"entries": [], **found}, "entries"):  # JSON omits an empty list
        with tally.skipping(SOURCE):
            entry = _entry(each)
            last_ns = max(last_ns, *(_stamp(each, key) for key in _STAMPS))
            entries.append(entry)
    return Dump(version, tuple(entries), _statuses(found, tally=tally), _members(found, tally=tally), last_ns)


def parse_pickle(data: bytes) -> Any:
    """Return the plain data of a pickle; raise MalformedError if the pickle is damaged or contains more than data."""
    try:
        return read_pickle(data)
    except UnsafePickleError as error:
        raise MalformedError("pickle that is more than data") from error
    except PickleError as error:
        raise MalformedError("broken pickle") from error


_STAMPS = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")


def _entry(found: Any) -> Entry:
    if not isinstance(found, dict):
        raise MalformedError("entry is no mapping")
    names = items(found, "process_group")
    if len(names) != 2 or not all(type(name) is str and len(name) <= 256 for name in names):
        raise MalformedError("process_group is no pair of name and description")
    point_to_point = found.get("is_p2p", False)
    if type(point_to_point) is not bool:
        raise MalformedError("is_p2p is no truth value")
    backend, _, op = text(found, "profiling_name").rpartition(":")
    state = text(found, "state")
    return Entry(
        group_id=whole(found, "pg_id"),
        group=names[0],
        desc=names[1],
        seq=whole(found, "p2p_seq_id" if point_to_point else "collective_seq_id"),
        point_to_point=point_to_point,
        backend=backend,
        op=op,
        called_ns=whole(found, "time_created_ns"),
        state=state,
        finished=_finished(found, state=state, backend=backend),
    )


def _finished(found: Record, *, state: str, backend: str) -> bool:
    """Return whether an entry is finished.  NCCL's watchdog marks complete operations and retires a timed-out one
    without the mark; gloo only retires them.
    """
    if state == "completed" or _stamp(found, "time_discovered_completed_ns"):
        return True
    return found.get("retired") is True and backend != "nccl"


def _stamp(found: Record, key: str) -> int:
    """Return nanoseconds since 1970; 0 without a time (pickles have None, JSON has 0)."""
    return 0 if found.get(key) is None else whole(found, key)


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


def _members(found: Record, *, tally: ParseErrors) -> dict[str, tuple[int, ...]]:
    """Return the members of each group; gloo's dumps have one group without a name, sometimes without ranks."""
    members = {}
    for name, config in list(mapping(found, "pg_config").items())[:MAX_GROUPS]:
        with tally.skipping(SOURCE):
            if not isinstance(config, dict) or not isinstance(name, str):
                raise MalformedError("pg_config is no mapping of mappings")
            members[name] = _ranks(config.get("ranks", []))
    return members


def _ranks(found: Any) -> tuple[int, ...]:
    """Parse a list of ranks, or its text."""
    ranks = parse_json(found) if isinstance(found, str) else found
    if not isinstance(ranks, list) or not all(type(rank) is int and 0 <= rank <= MAX_INDEX for rank in ranks):
        raise MalformedError("pg_config has no list of ranks")
    return tuple(ranks)
