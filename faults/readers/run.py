"""run.json: the description of a recorded job."""

from dataclasses import dataclass

from faults.detector import Job, JobFabric, is_indices, is_leaves
from faults.readers.fields import LATEST_S, Record, in_range, parse_record
from faults.readers.parse_errors import MalformedError
from fleet.documents import RuleError

RUN = "run.json"
MAX_RANKS = 1 << 17
MAX_NODES = 1 << 14
RANGE = f"expected a whole number from 1 to {MAX_RANKS:,}"


@dataclass(frozen=True, slots=True)
class Run:
    job: Job
    t_go_s: float | None  # None: only dumps have times
    duration_s: float | None
    dumped_s: float | None  # when the dumps were requested, if the recorder noted it


def parse_run(data: bytes) -> Run:
    """Parse the description; raise a RuleError that names the field."""
    try:
        record = parse_record(data)
    except MalformedError as error:
        raise RuleError([((), f"is {error}, expected the JSON object of a recording")]) from error
    ranks = _ranks(record)
    rank_node = _rank_node(record, ranks)
    if max(rank_node) >= MAX_NODES:
        raise RuleError([(("rank_node",), f"expected at most {MAX_NODES:,} nodes, got {max(rank_node) + 1:,}")])
    job = Job(
        nodes=max(rank_node) + 1,
        rank_node=rank_node,
        groups=_groups(record, ranks),
        look_period_s=1.0 / (_number(record, "sample_hz", minimum=0.01, maximum=1000.0) or 4.0),
        heartbeat_s=_number(record, "heartbeat_s", minimum=0.01, maximum=3600.0) or 0.5,
        fabric=_fabric(record, max(rank_node) + 1),
    )
    return Run(
        job=job,
        t_go_s=_number(record, "t_go", minimum=0.0, maximum=LATEST_S),
        duration_s=_number(record, "dur", minimum=0.0, maximum=LATEST_S),
        dumped_s=_number(record, "dumped", minimum=0.0, maximum=LATEST_S),
    )


def _ranks(record: Record) -> int:
    ranks = record.get("n")
    if type(ranks) is not int or not 1 <= ranks <= MAX_RANKS:
        raise RuleError([(("n",), RANGE)])
    return ranks


def _rank_node(record: Record, ranks: int) -> tuple[int, ...]:
    """Return the node of each rank; by default one rank on each node."""
    found = record.get("rank_node")
    if found is None:
        return tuple(range(ranks))
    if not is_indices(found, below=ranks) or len(found) != ranks:
        raise RuleError([(("rank_node",), f"expected the node of each of the {ranks} ranks, from 0 to {ranks - 1}")])
    return tuple(found)


def _groups(record: Record, ranks: int) -> tuple[tuple[int, ...], ...]:
    found = record.get("groups", [])
    members = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(members, list) or not all(is_indices(group, below=ranks) for group in members):
        raise RuleError([(("groups",), f"expected lists of ranks from 0 to {ranks - 1}")])
    return tuple(dict.fromkeys(tuple(group) for group in members))


def _fabric(record: Record, nodes: int) -> JobFabric | None:
    leaves = record.get("leaves")
    if leaves is None:
        return None
    if not is_leaves(leaves, nodes=nodes):
        raise RuleError([(("leaves",), f"expected the name of the leaf switch of each of the {nodes} nodes")])
    return JobFabric(tuple(leaves))


def _number(record: Record, key: str, *, minimum: float, maximum: float) -> float | None:
    if record.get(key) is None:
        return None
    try:
        return in_range(record[key], key, minimum=minimum, maximum=maximum)
    except MalformedError as error:
        raise RuleError([((key,), f"expected a number from {minimum:g} to {maximum:g}")]) from error
