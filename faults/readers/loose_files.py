"""A folder of what a stopped job left, without a description of the job: the dumps describe it.

The number of ranks, the groups and the start come from the Flight Recorder dumps, otherwise from NCCL RAS or NCCL
Inspector.  Each rank stands for its own node.  Hosts are known where RAS or Inspector name them; kernel logs need them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Final

from faults.detector import Job
from faults.observations import DeviceCounter, Observation
from faults.readers.fields import MAX_INDEX, mapping, optional_text, parse_record, whole
from faults.readers.flight import Dump, flights
from faults.readers.flight.dump import PICKLE
from faults.readers.job_map import JobMap
from faults.readers.lines import split_lines, whole_document
from faults.readers.nccl_inspector import InspectorLines
from faults.readers.nccl_ras import Communicators, parse_ras
from faults.readers.nccl_ras_text import HEADING, parse_ras_text
from faults.readers.parse_errors import MalformedError, ParseErrors
from faults.readers.recording import DAY_S, MAX_DURATION_S, Content, Recording, in_order, rounds
from faults.readers.recording_files import dump_rank
from faults.readers.run import MAX_NODES
from fleet.documents import RuleError

HEAD_BYTES: Final = 4096  # of a file, from which its kind is known
MAX_NOTES: Final = 64
_RANK_AT_END = re.compile(r".*?(\d{1,6})(?:\.(?:json|pickle|pkl|bin|dump|trace))?")
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

    observations: list[Observation] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)


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
        return FileKind.DUMP if rank_of_dump(name) is not None else None
    if dump_rank(name) is not None:  # a damaged one: the reader counts it
        return FileKind.DUMP
    return None if b"\0" in head or text[:1] in (b"{", b"[", PICKLE) else FileKind.KERNEL_LOG


def rank_of_dump(name: str) -> int | None:
    """Return the rank at the end of a file name, to which Flight Recorder adds it: `_dump_3`, `nccl_trace_rank_3`."""
    match = _RANK_AT_END.fullmatch(name)
    return int(match[1]) if match else None


def read_loose(dumps: Sequence[tuple[int, Dump]], others: Iterable[LooseFile], *, tally: ParseErrors) -> Recording:
    """Read the files of a job without a description; a RuleError says what is missing."""
    files = list(others)
    ras = {file.name: whole_document(file.content) for file in files if file.kind is FileKind.RAS}
    ras_texts = [parse_ras_text(whole_document(file.content)) for file in files if file.kind is FileKind.RAS_TEXT]
    inspector = {
        file.name: list(split_lines(_chunks(file.content), source="inspector", tally=tally))
        for file in files
        if file.kind is FileKind.INSPECTOR
    }
    sizes = chain(_ras_sizes(ras.values()), *(each.sizes for each in ras_texts), _inspector_sizes(inspector.values()))
    ranks = max(chain(_dumped_ranks(dumps), sizes), default=0)
    if not ranks:
        raise RuleError([((), "holds no dump of Flight Recorder, no reply of NCCL RAS and no file of NCCL Inspector")])
    if ranks > MAX_NODES:
        raise RuleError([((), f"is of a job of {ranks:,} ranks, expected at most {MAX_NODES:,}")])
    t_go_s = min((dump.first_s for _, dump in dumps if dump.first_ns), default=0.0)
    job = Job(nodes=ranks, rank_node=tuple(range(ranks)))
    job_map = JobMap(ranks, job.rank_node, zero_s=t_go_s, earliest_s=-DAY_S, latest_s=DAY_S + MAX_DURATION_S)
    if not dumps:
        job_map = JobMap(ranks, job.rank_node)
    dumped_s = max((dump.last_s - t_go_s for _, dump in dumps if dump.first_ns), default=0.0)
    found = _Found()
    for _, content in sorted(ras.items()):
        members = Communicators(job_map)
        found.observations += parse_ras(content, at_s=dumped_s, job_map=job_map, members=members, tally=tally)
        found.hosts |= members.hosts()
    for reply in ras_texts:
        found.observations += reply.observations(at_s=dumped_s, job_map=job_map, tally=tally)
        found.hosts |= reply.hosts(job_map)
        found.notes |= dict.fromkeys(reply.notes())
    for _, lines in sorted(inspector.items()):
        _add_inspector(found, lines, job_map=job_map, tally=tally)
    for file in files:
        if file.kind is FileKind.KERNEL_LOG:
            _add_kernel_log(found, file, at_s=dumped_s, tally=tally)
    for each in rounds(dumps):
        found.observations += dict.fromkeys(flights(each, at_s=dumped_s, job_map=job_map, tally=tally))
    hosts = tuple(found.hosts.get(rank) for rank in range(ranks))
    ordered = tuple(in_order(found.observations, tally=tally))
    return Recording(job, t_go_s, ordered, tally.counts(), hosts, tuple(found.notes))


def _chunks(content: Content) -> Iterable[bytes]:
    return (content,) if isinstance(content, bytes) else content


def _dumped_ranks(dumps: Iterable[tuple[int, Dump]]) -> Iterator[int]:
    for rank, dump in dumps:
        yield 1 + max(rank, *(max(members, default=0) for members in dump.members.values()), 0)


def _ras_sizes(replies: Iterable[bytes]) -> Iterator[int]:
    for reply in replies:
        for match in re.finditer(rb'"size": ?(\d{1,7})\b', reply):
            yield int(match[1])


def _inspector_sizes(files: Iterable[Sequence[bytes]]) -> Iterator[int]:
    for lines in files:
        yield from (size for _, size, _ in map(_inspector_header, lines) if size)


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
    """Add the Xid errors of a kernel log, at the time of the dumps: they are the newest before these."""
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
        found.observations += [
            Observation(at_s, rank, counter) for rank, each in sorted(found.hosts.items()) if each == host
        ]


def _host(line: str, file_name: str, known: Iterable[str]) -> str | None:
    """Return the host of a line: its own, otherwise the known one that the file is named after."""
    match = _SYSLOG_HOST.match(line)
    if match is not None:
        return match[1]
    return max((host for host in set(known) if host in file_name), key=len, default=None)
