"""A folder of what a stopped job left, without a description of the job: the dumps describe it.

The number of ranks, the groups and the start come from the Flight Recorder dumps, otherwise from NCCL RAS or NCCL
Inspector.  Each rank stands for its own node.  Hosts are known where RAS or Inspector name them; kernel logs need them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median_low
from typing import Final

from faults.detector import Job
from faults.observations import DeviceCounter, Observation
from faults.readers.fields import MAX_INDEX, mapping, optional_text, parse_record, whole
from faults.readers.flight import Dump, flights
from faults.readers.flight.dump import PICKLE, SOURCE
from faults.readers.job_map import JobMap
from faults.readers.lines import split_lines, whole_document
from faults.readers.nccl_inspector import InspectorLines
from faults.readers.nccl_ras import Communicators, parse_ras
from faults.readers.nccl_ras_text import HEADING, RasText, parse_ras_text
from faults.readers.parse_errors import MalformedError, ParseErrors
from faults.readers.recording import DAY_S, Content, Recording, in_order
from faults.readers.recording_files import dump_rank
from faults.readers.run import MAX_NODES
from fleet.documents import RuleError

HEAD_BYTES: Final = 4096  # of a file, from which its kind is known
MAX_NOTES: Final = 64
_FORMAT = r"(?:\.(?:json|pickle|pkl|bin))?"
_NAMED_RANK = re.compile(rf".*(?:rank|dump|trace|fr|st)[_.-]?(\d{{1,6}}){_FORMAT}")
_RANK_INSIDE = re.compile(r"rank[_.-]?(\d{1,6})(?!\d)")
_LAST_NUMBER = re.compile(rf".*?(?<![\d.])(\d{{1,6}}){_FORMAT}")
EARLIER_RUN_S: Final = 300.0  # a dump whose last event is that long before the first one of most others
MAX_CLOCK_ERROR_S: Final = DAY_S  # of a dump, from most others
_JSON = re.compile(rb"\{|\[\s*[\[\]{\"]")  # a line of dmesg begins with [ and a time
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{1,16})\): (\d{1,5})\b")
_SYSLOG_HOST = re.compile(r"^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT\S+) (\S{1,253}) kernel:")


class FileKind(StrEnum):
    DUMP = "dump"
    RAS = "ras"
    RAS_TEXT = "ras-text"
    INSPECTOR = "inspector"
    KERNEL_LOG = "kernel-log"


@dataclass(frozen=True, slots=True)
class LooseFile:
    name: str
    kind: FileKind
    content: Content


@dataclass(slots=True)
class _Found:
    """What the files other than dumps contain."""

    ras: dict[str, bytes]
    ras_texts: list[RasText]
    inspector: dict[str, list[bytes]]
    observations: list[Observation] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def sizes(self) -> Iterator[int]:
        """Return the sizes of the communicators."""
        for reply in self.ras.values():
            yield from (int(match[1]) for match in re.finditer(rb'"size": ?(\d{1,7})\b', reply))
        for text in self.ras_texts:
            yield from text.sizes
        for lines in self.inspector.values():
            yield from (size for _, size, _ in map(_inspector_header, lines))

    def add_ras(self, *, at_s: float, job_map: JobMap, tally: ParseErrors) -> None:
        for _, reply in sorted(self.ras.items(), key=lambda each: (_timestamp(each[1]), each[0])):
            members = Communicators(job_map)
            self.observations += parse_ras(reply, at_s=at_s, job_map=job_map, members=members, tally=tally)
            self.hosts |= members.hosts()
        for text in self.ras_texts:
            self.observations += text.observations(at_s=at_s, job_map=job_map, tally=tally)
            self.hosts |= text.hosts(job_map)
            self.notes |= dict.fromkeys(text.notes())


def _timestamp(reply: bytes) -> bytes:
    match = re.search(rb'"timestamp": ?"([0-9: -]{1,32})"', reply)
    return match[1] if match else b""


def kind_of(name: str, head: bytes) -> FileKind | None:
    """Return the kind of a file by its name and first bytes; None for one that belongs to no stopped job."""
    text = head.lstrip()
    if b'"communicators' in text:
        return FileKind.RAS
    if HEADING in text:
        return FileKind.RAS_TEXT
    if b'"inspector_output_format_version"' in text:
        return FileKind.INSPECTOR
    if (head[:1] == PICKLE or text[:1] == b"{") and (b"pg_config" in head or b"collective_seq_id" in head):
        return FileKind.DUMP
    if dump_rank(name) is not None:  # a damaged one: the reader counts it
        return FileKind.DUMP
    return None if b"\0" in head or head[:1] == PICKLE or _JSON.match(text) else FileKind.KERNEL_LOG


def rank_of_dump(name: str) -> int | None:
    """Return the rank in a file name, at whose end Flight Recorder writes it: `_dump_3`, `nccl_trace_rank_3`."""
    match = _NAMED_RANK.fullmatch(name) or _RANK_INSIDE.search(name) or _LAST_NUMBER.fullmatch(name)
    return int(match[1]) if match else None


def read_loose(dumps: Sequence[tuple[int, Dump]], others: Iterable[LooseFile], *, tally: ParseErrors) -> Recording:
    """Read the files of a job without a description; a RuleError names what is missing."""
    files = list(others)
    newest = dict(_newest(dumps, tally=tally))
    found = _Found(*_texts(files, tally=tally))
    sizes = [1 + _highest_rank(rank, dump) for rank, dump in newest.items()] or [*found.sizes()]
    ranks = max((size for size in sizes if size <= MAX_NODES), default=0)
    if not ranks:
        raise _unusable(tally)
    t_go_s = median_low([dump.first_s for dump in newest.values() if dump.first_ns] or [0.0])
    near = [
        dump
        for dump in newest.values()
        if max(abs(at_s - t_go_s) for at_s in (dump.first_s, dump.last_s)) < MAX_CLOCK_ERROR_S
    ]
    t_go_s = min((dump.first_s for dump in near), default=t_go_s)
    dumped_s = max((dump.last_s - t_go_s for dump in near), default=0.0)
    job = Job(nodes=ranks, rank_node=tuple(range(ranks)))
    job_map = JobMap(ranks, job.rank_node, zero_s=t_go_s)
    found.add_ras(at_s=dumped_s, job_map=job_map, tally=tally)
    for _, lines in sorted(found.inspector.items()):
        _add_inspector(found, lines, job_map=job_map, tally=tally)
    for file in files:
        if file.kind is FileKind.KERNEL_LOG:
            _add_kernel_log(found, file, at_s=dumped_s, tally=tally)
    found.observations += dict.fromkeys(flights(newest, at_s=dumped_s, job_map=job_map, tally=tally))
    if not found.observations:
        raise _unusable(tally)
    hosts = tuple(found.hosts.get(rank) for rank in range(ranks))
    ordered = tuple(in_order(found.observations, tally=tally))
    return Recording(job, t_go_s, ordered, tally.counts(), hosts, tuple(found.notes))


def _unusable(tally: ParseErrors) -> RuleError:
    defects = "; ".join(f"{count:,} x {defect}" for defect, count in tally.counts().items())
    message = "holds no usable dump of Flight Recorder, and no usable output of NCCL RAS or NCCL Inspector"
    return RuleError([((), f"{message} ({defects})" if defects else message)])


def _newest(dumps: Sequence[tuple[int, Dump]], *, tally: ParseErrors) -> Iterator[tuple[int, Dump]]:
    """Return the newest dump of each rank, without dumps of an earlier run and of ranks outside their own groups."""
    newest: dict[int, Dump] = {}
    for rank, dump in dumps:
        members = [ranks for ranks in dump.members.values() if ranks]
        if members and not any(rank in ranks for ranks in members):
            tally.add(SOURCE, "dump of a rank outside its groups")
        elif _highest_rank(rank, dump) >= MAX_NODES:
            tally.add(SOURCE, f"dump of a job of more than {MAX_NODES:,} ranks")
        elif rank not in newest or newest[rank].last_ns < dump.last_ns:
            newest[rank] = dump
    begun_ns = median_low([dump.first_ns for dump in newest.values() if dump.first_ns] or [0])
    for rank, dump in newest.items():
        # Further away, its clock is wrong, not its numbers.
        if dump.first_ns and EARLIER_RUN_S * 1e9 < begun_ns - dump.last_ns < MAX_CLOCK_ERROR_S * 1e9:
            tally.add(SOURCE, "dump of an earlier run")
        else:
            yield rank, dump


def _highest_rank(rank: int, dump: Dump) -> int:
    return max(rank, *(max(ranks, default=0) for ranks in dump.members.values()), 0)


def _texts(
    files: Sequence[LooseFile], *, tally: ParseErrors
) -> tuple[dict[str, bytes], list[RasText], dict[str, list[bytes]]]:
    ras: dict[str, bytes] = {}
    ras_texts: list[RasText] = []
    inspector: dict[str, list[bytes]] = {}
    for file in files:
        with tally.skipping(file.kind.value):
            if file.kind is FileKind.RAS:
                ras[file.name] = whole_document(file.content)
            elif file.kind is FileKind.RAS_TEXT:
                ras_texts.append(parse_ras_text(whole_document(file.content)))
            elif file.kind is FileKind.INSPECTOR:
                inspector[file.name] = list(split_lines(_chunks(file.content), source="inspector", tally=tally))
    return ras, ras_texts, inspector


def _chunks(content: Content) -> Iterable[bytes]:
    return (content,) if isinstance(content, bytes) else content


def _inspector_header(line: bytes) -> tuple[int, int, str | None]:
    """Return the rank, the size of the communicator and the host of a line; 0 without a header."""
    try:
        record = parse_record(line)
        header = mapping(record, "header")
        if not header:
            return 0, 0, None
        host = optional_text(mapping(record, "metadata"), "hostname")
        return whole(header, "rank", maximum=MAX_INDEX), whole(header, "n_ranks", maximum=MAX_INDEX), host
    except MalformedError:
        return 0, 0, None


def _add_inspector(found: _Found, lines: Sequence[bytes], *, job_map: JobMap, tally: ParseErrors) -> None:
    """Add the lines of one process, whose rank is its rank in the communicator of all ranks."""
    headers = map(_inspector_header, lines)
    whole_job = next((header for header in headers if header[1] == len(job_map.rank_node)), None)
    if whole_job is None:
        tally.add("inspector", "file without the communicator of all ranks")
        return
    rank, _, host = whole_job
    if host is not None:
        found.hosts[rank] = host
    reader = InspectorLines(rank=rank, job_map=job_map)
    for line in lines:
        with tally.skipping("inspector"):
            found.observations += reader.parse(line)


def _add_kernel_log(found: _Found, file: LooseFile, *, at_s: float, tally: ParseErrors) -> None:
    """Add the Xid errors of a kernel log, at the time of the dumps: the lines of a log need not have a date."""
    for line in split_lines(_chunks(file.content), source="kernel-log", tally=tally):
        if b"NVRM: Xid" not in line:
            continue
        text = line.decode(errors="replace")
        match = _XID.search(text)
        if match is None:
            tally.add("kernel-log", "Xid without a number")
            continue
        gpu, code = match[1], int(match[2])
        host = _host(text, file.name, found.hosts.values())
        if len(found.notes) < MAX_NOTES:
            found.notes[f"Xid {code} on GPU {gpu} of {host or 'an unknown host'} ({file.name})"] = None
        counter = DeviceCounter(gpu, "xid", code, 1.0)
        ranks = (rank for rank, each in sorted(found.hosts.items()) if host and _short(each) == _short(host))
        found.observations += [Observation(at_s, rank, counter) for rank in ranks]


def _short(host: str) -> str:
    """Return a host name without its domain; an address as it is."""
    name, _, _ = host.partition(".")
    return host if name.isdecimal() else name


def _host(line: str, file_name: str, known: Iterable[str]) -> str | None:
    """Return the host of a line: its own, otherwise the known one that the file is named after."""
    match = _SYSLOG_HOST.match(line)
    if match is not None:
        return match[1]
    named = (host for host in set(known) if re.search(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![\w-])", file_name))
    return max(named, key=len, default=None)
