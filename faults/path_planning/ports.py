"""The source port with which each connection takes its planned path, as rows, and the probe plan to find it.

The path of a port depends on hashes that vendors do not publish, so it is measured: `probed` tables contain the path
of packets per sender, receiver and source port.  Without a table the model of `faults.path_planning.ecmp` is used, and
every row is marked `model`.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from faults.path_planning.assignment import Part, Path, connections
from faults.path_planning.ecmp import FIRST_PORT, PORTS, Fabric, columns, planned_columns
from faults.path_planning.plan import Plan
from faults.path_planning.traffic import Traffic
from fleet.documents import RuleError

AT_ONCE: Final = 256  # ports tried together for each connection
MISSED: Final = 1e-3  # probability that a probe plan misses one of a pair's paths
MAX_HCCL_LINES: Final = 131_072
MAX_HCCL_PORTS: Final = 32  # of an address pair
Probed = Mapping[tuple[str, str, str], Sequence[int]]  # from, to, path -> source ports


@dataclass(frozen=True, slots=True)
class Row:
    """The path of one connection."""

    job: str
    ring: str
    source: str
    source_port: int  # of a bonded NIC
    target: str
    target_port: int
    connection: int
    connections: int  # number in the flow
    share: float  # of the flow's data
    udp_source_port: int | None  # None: no port is known for the path
    flow_label: int | None
    path: str
    by: str  # "probed" or "model"


def flow_label(port: int) -> int:
    """Return a GRH flow label that Linux folds into this source port (low 14 bits xor high 6); never 0 (no label)."""
    return 1 << 14 | (port & 0x3FFF ^ 1)


def path_name(traffic: Traffic, part: Part, path: Path) -> str:
    """`leaf/spine#0/core#0/spine#0/leaf#0`: after each switch the number of the parallel cable that led to it."""
    clos = traffic.clos
    names = [clos.names[part.source]]
    for link in path:
        wire = clos.wires[link // 2]
        names.append(f"{clos.names[wire.lower if link % 2 else wire.upper]}#{wire.cable}")
    return "/".join(names)


def read_probed(lines: Iterable[str]) -> Probed:
    """Read a probed table: CSV with at least the columns from, to, port, path."""
    reader = csv.DictReader(lines)
    found: dict[tuple[str, str, str], list[int]] = {}
    try:
        missing = {"from", "to", "port", "path"} - set(reader.fieldnames or ())
        if missing:
            raise RuleError([((), f"lacks the columns {', '.join(sorted(missing))}")])
        for row in reader:
            key, port = _probe(row, reader.line_num)
            found.setdefault(key, []).append(port)
    except csv.Error as error:
        raise RuleError([((f"line {reader.line_num + 1}",), str(error))]) from error
    return found


def choices(plan: Plan, probed: Probed | None = None) -> list[Row]:
    ports = _modelled(plan) if probed is None else _table_ports(plan, probed)
    counts = connections(plan.parts)
    return [
        _row(plan, part, count=counts[part.flow], port=port, by="model" if probed is None else "probed")
        for part, port in zip(plan.parts, ports, strict=True)
    ]


def _row(plan: Plan, part: Part, *, count: int, port: int | None, by: str) -> Row:
    traffic, path = plan.traffic, plan.paths[part]
    flow = traffic.flows[part.flow]
    source, target = traffic.nics[flow.source], traffic.nics[flow.target]
    return Row(
        job=traffic.job.name,
        ring=traffic.rings[flow.ring],
        source=source.name,
        source_port=part.index % len(source.leaves),
        target=target.name,
        target_port=part.index % len(target.leaves),
        connection=part.index,
        connections=count,
        share=1 / count,
        udp_source_port=port,
        flow_label=None if port is None else flow_label(port),
        path=path_name(traffic, part, path),
        by=by,
    )


def _table_ports(plan: Plan, probed: Probed) -> Iterator[int | None]:
    """Return ports from the table; a port repeats for a sender and receiver only when none is left."""
    used: dict[tuple[str, str, str], int] = {}
    for part in plan.parts:
        flow = plan.traffic.flows[part.flow]
        nics = plan.traffic.nics
        key = nics[flow.source].name, nics[flow.target].name, path_name(plan.traffic, part, plan.paths[part])
        known = probed.get(key, ())
        turn = used.get(key, 0)
        used[key] = turn + 1
        yield known[turn % len(known)] if known else None


def _modelled(plan: Plan) -> Sequence[int | None]:
    traffic, parts = plan.traffic, plan.parts
    fabric = Fabric(traffic)
    sources, targets = columns(traffic, [part.flow for part in parts])
    out, into, wanted = planned_columns(traffic, plan.paths, parts)
    found: list[int | None] = [None] * len(parts)
    open_ = np.arange(len(parts))
    # Connections of one flow start at different ports, so that two on one path do not share a port.
    start = np.array([part.index * 1_021 for part in parts], dtype=np.int64)
    for first in range(0, PORTS, AT_ONCE):
        if not len(open_):
            break
        each = np.repeat(open_, AT_ONCE)
        ports = FIRST_PORT + (start[each] + first + np.tile(np.arange(AT_ONCE), len(open_))) % PORTS
        left_by, came_in, links = fabric.sent(sources[each], targets[each], ports)
        hit = (links == wanted[each]).all(axis=1) & (left_by == out[each]) & (came_in == into[each])
        hits = hit.reshape(len(open_), AT_ONCE)
        for place in np.flatnonzero(hits.any(axis=1)):
            found[open_[place]] = int(ports[place * AT_ONCE + hits[place].argmax()])
        open_ = open_[~hits.any(axis=1)]
    return found


def hccl_file(rows: Sequence[Row], traffic: Traffic) -> str:
    """Return MultiQpSrcPort.cfg, from which HCCL (Ascend) reads the source ports; `HCCL_RDMA_QP_PORT_CONFIG_PATH` names
    its folder.

    A line `source,target=port,port,...` per address pair, a queue pair per port (hiascend.com, CANN 8.5, read November
    2026).  Data is divided evenly over the ports.  Raise RuleError for an unknown address or port.
    """
    addresses = {nic.name: nic.address for nic in traffic.nics}
    RuleError.raise_for(
        (("addresses",), f"has none for {name}") for name, address in addresses.items() if address is None
    )
    pairs: dict[tuple[str | None, str | None], list[int]] = {}
    for row in rows:
        if row.udp_source_port is None:
            raise RuleError([((), f"{row.source} to {row.target}: no source port is known for {row.path}")])
        pairs.setdefault((addresses[row.source], addresses[row.target]), []).append(row.udp_source_port)
    if len(pairs) > MAX_HCCL_LINES or any(len(ports) > MAX_HCCL_PORTS for ports in pairs.values()):
        raise RuleError([((), f"the form allows {MAX_HCCL_LINES:,} pairs and {MAX_HCCL_PORTS} ports per pair")])
    return "".join(f"{source},{target}={','.join(map(str, ports))}\n" for (source, target), ports in pairs.items())


def _probe(row: Mapping[str, str | None], line: int) -> tuple[tuple[str, str, str], int]:
    source, target, path, text = row["from"], row["to"], row["path"], row["port"] or ""
    if not source or not target or not path:
        raise RuleError([((f"line {line}",), "expected from, to, port and path, got less")])
    if not (
        len(text) == len(str(FIRST_PORT)) and text.isascii() and text.isdigit() and 0 <= int(text) - FIRST_PORT < PORTS
    ):
        raise RuleError(
            [((f"line {line}",), f"port must be {FIRST_PORT} to {FIRST_PORT + PORTS - 1}, got {text[:40]!r}")]
        )
    return (source, target, path), int(text)


@dataclass(frozen=True, slots=True)
class Probe:
    """Probes between two NICs that show the path of each port."""

    source: str
    target: str
    first_port: int
    ports: int
    paths: int


def probes(plan: Plan) -> list[Probe]:
    """Return, for each neighbour pair, enough ports to observe every path with probability 0.999 (coupon collector)."""
    traffic = plan.traffic
    fabric = Fabric(traffic)
    found = []
    for source, target in dict.fromkeys((flow.source, flow.target) for flow in traffic.flows):
        one, other = traffic.nics[source], traffic.nics[target]
        paths = sum(
            sum(math.prod(len(traffic.clos.trunks[hop]) for hop in hops) for hops in fabric.routes.ways(here, there))
            for here in one.leaves
            for there in other.leaves
        )
        need = 1 if paths == 1 else math.ceil(math.log(MISSED / paths) / math.log1p(-1 / paths))
        found.append(Probe(one.name, other.name, FIRST_PORT, min(PORTS, need), paths))
    return found
