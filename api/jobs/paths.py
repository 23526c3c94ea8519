"""Assigns the connections of a job to cables, within limits that are checked before the work."""

from collections.abc import Iterator
from typing import Final

from api.schemas.fault_paths import PathsRequest, PathsResponse
from faults.path_planning import TrafficJob, choices, make_plan, traffic_of
from fleet.documents import RuleError, Violation
from fleet.topology import Topology, TopologyIndex
from fleet.topology.hostlist import count, expand

MAX_CONNECTIONS: Final = 16_384  # of 1,024 NICs with 100 draws: 11 s of a core (November 2026)
MAX_DRAWN: Final = 100 * MAX_CONNECTIONS
MAX_CABLES: Final = 262_144


def paths_of(request: PathsRequest, topology: Topology) -> PathsResponse:
    """Return the plan and its figures.  Raises RuleError naming the request's field."""
    index = topology.index
    RuleError.raise_for(_too_large(request.job, index, draws=request.draws))
    try:
        plan = make_plan(traffic_of(request.job, index))
    except RuleError as error:
        raise RuleError((("job", *path), message) for path, message in error.violations) from error
    rows = choices(plan)
    response = PathsResponse.of(plan, rows, draws=request.draws, seed=request.seed)
    return response.with_choices(rows) if request.choices else response


def _too_large(job: TrafficJob, index: TopologyIndex, *, draws: int) -> Iterator[Violation]:
    needed = _senders(job, index) * job.connections * (2 if job.both_ways else 1)
    if needed > MAX_CONNECTIONS:
        yield ("job",), f"needs {needed:,} connections, the limit here is {MAX_CONNECTIONS:,}"
    elif needed * draws > MAX_DRAWN:
        yield ("draws",), f"must be at most {MAX_DRAWN // needed:,} for {needed:,} connections"
    cables = sum(len(switch.uplinks) * switch.links_per_uplink for switch in index.switches.values())
    if cables > MAX_CABLES:
        yield ("topology",), f"has {cables:,} cables, the limit here is {MAX_CABLES:,}"


def _senders(job: TrafficJob, index: TopologyIndex) -> int:
    """Count the members of all rings; for a group without NICs, use the maximum of its first node."""
    found = sum(len(ring.members) for ring in job.rings)
    for group in job.groups:
        first = index.nodes.get(expand(group.nodes[0])[0])
        nics = len(group.nics) if group.nics is not None else len(first.leaves) if first is not None else 1
        found += sum(map(count, group.nodes)) * max(1, nics)
    return found
