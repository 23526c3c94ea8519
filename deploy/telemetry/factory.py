"""Makes a recorder or a prober from a `Recording`."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from deploy.telemetry.exporters import dcgm_source, xpu_timer_source
from deploy.telemetry.flight_recorder import FlightSource
from deploy.telemetry.folder import RecordingFolder, refuse_other_run
from deploy.telemetry.inbox import Inbox
from deploy.telemetry.peer_discovery import Talking
from deploy.telemetry.peers import Peers
from deploy.telemetry.ports import PortSource
from deploy.telemetry.prober import Prober
from deploy.telemetry.processes import ProcessSource
from deploy.telemetry.ras import RasSource
from deploy.telemetry.recorder import Recorder, Sink
from deploy.telemetry.sender import Sender
from deploy.telemetry.sockets import SocketSource
from deploy.telemetry.sources import Source
from deploy.telemetry.threaded_source import ThreadedSource
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from fleet.documents import RuleError

MAX_HELD: Final = 16  # polls
HELD_S: Final = 1.0  # polls without changes are written together this often
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What to observe on one node, how often, and where to send it."""

    node: int
    peers: Peers
    period_s: float = 0.25
    namespace: Path | None = None  # None: the namespace of this process
    pid_of: Mapping[int, int] = field(default_factory=dict)  # by rank
    ranks_per_node: int = 1
    ignored_ports: frozenset[int] = frozenset()
    inbox: Path | None = None  # for `fleetwright.collectives`
    probe_bytes: int | None = None  # size of one-way probes
    probe_every_s: float = 0.5
    probes_only: bool = False  # no other source: a prober beside the recorder, which then has none
    infiniband: Path | None = None  # /sys/class/infiniband
    flights: Path | None = None  # folder of Flight Recorder dumps
    dcgm: str | None = None  # URL of an exporter
    xpu_timer: str | None = None
    ras: tuple[str, int] | None = None
    folder: Path | None = None
    run: Mapping[str, Any] = field(default_factory=dict)  # fields for run.json
    monitor_url: str | None = None  # URL
    token: str | None = None
    budget_bytes_per_s: float = 1000.0
    held_s: float = 0.0  # how long unchanged polls may be held, to be processed together

    @property
    def job_map(self) -> JobMap:
        """Return the job's ranks on its nodes, with addresses."""
        ranks = range(self.peers.nodes * self.ranks_per_node)
        rank_node = tuple(rank // self.ranks_per_node for rank in ranks)
        return JobMap(self.peers.nodes, rank_node, hosts=self.peers.node_of)


def settle_memory() -> None:
    """Exclude what is loaded from later garbage collections."""
    gc.collect()
    gc.freeze()


def recorder_of(recording: Recording, *, started_s: float, tally: ParseErrors | None = None) -> Recorder:
    """Open everything, or nothing.  Raise OSError where access is denied, FleetwrightError for contradictions.

    `tally` counts malformed input.
    """
    if recording.probes_only and recording.probe_bytes is None:
        raise RuleError([(("probe_bytes",), "expected the size of a train, since probes are the only source")])
    tally = tally or ParseErrors()
    held = 1 if recording.probes_only else min(MAX_HELD, max(1, round(recording.held_s / recording.period_s)))
    with ExitStack() as opened:
        sockets = SocketSource(
            node=recording.node,
            peers=recording.peers,
            ignored_ports=recording.ignored_ports | _own_ports(recording),
            namespace=recording.namespace,
            most_held=held,
        )
        opened.callback(sockets.close)
        sources: list[Source] = []
        for source in _sources(recording, tally, sockets):
            opened.callback(source.close)
            sources.append(source)
        sinks = _sinks(recording, started_s=started_s)
        opened.pop_all()
    return Recorder(
        sockets=None if recording.probes_only else sockets,
        sources=sources,
        sinks=sinks,
        period_s=recording.period_s,
    )


def _own_ports(recording: Recording) -> frozenset[int]:
    """Return the monitor's port: the recorder's connections to it are not the job's."""
    if recording.monitor_url is None:
        return frozenset()
    parts = urlsplit(recording.monitor_url)
    return frozenset({parts.port or _PORTS.get(parts.scheme, 80)})


def _sources(recording: Recording, tally: ParseErrors, sockets: SocketSource) -> Iterator[Source]:
    """Yield the sources, each opened on demand."""
    if recording.probes_only:
        yield Talking(sockets)
        yield from _probers(recording, tally, sockets)
        return
    node, job_map, period_s = recording.node, recording.job_map, recording.period_s
    if recording.pid_of:
        yield ProcessSource(node=node, pid_of=recording.pid_of, period_s=period_s)
    if recording.inbox is not None:
        yield Inbox(recording.inbox, job_map=job_map, tally=tally, period_s=period_s)
    yield from _probers(recording, tally, sockets)
    yield from (ThreadedSource(source, take_period_s=period_s) for source in _slow_sources(recording, tally))


def _slow_sources(recording: Recording, tally: ParseErrors) -> Iterator[Source]:
    node, job_map = recording.node, recording.job_map
    if recording.infiniband is not None:
        yield PortSource(node=node, tally=tally, root=recording.infiniband)
    if recording.flights is not None:
        yield FlightSource(recording.flights, job_map=job_map, tally=tally)
    if recording.dcgm is not None:
        yield dcgm_source(recording.dcgm, node=node, job_map=job_map, tally=tally)
    if recording.xpu_timer is not None:
        yield xpu_timer_source(recording.xpu_timer, job_map=job_map, tally=tally)
    if recording.ras is not None:
        yield RasSource(job_map=job_map, tally=tally, address=recording.ras)


def _probers(recording: Recording, tally: ParseErrors, sockets: SocketSource) -> list[Source]:
    """Return one prober, or none if not requested."""
    if recording.probe_bytes is None:
        return []
    prober = Prober(
        node=recording.node,
        peers=recording.peers,
        size_bytes=recording.probe_bytes,
        every_s=recording.probe_every_s,
        period_s=recording.period_s,
        namespace=recording.namespace,
        tally=tally,
        talking=sockets.talking,
    )
    return [prober]


def _sinks(recording: Recording, *, started_s: float) -> list[Sink]:
    sinks: list[Sink] = []
    if recording.folder is not None:
        known = {
            "n": len(recording.job_map.rank_node),
            "t_go": started_s,
            "sample_hz": round(1.0 / recording.period_s, 6),
            "rank_node": list(recording.job_map.rank_node),
        }
        run = known | dict(recording.run)
        refuse_other_run(recording.folder, run=run)
        sinks.append(RecordingFolder(recording.folder, run=run, held_s=recording.held_s))
    if recording.monitor_url is not None:
        sender = Sender(
            recording.monitor_url,
            node=recording.node,
            prober=recording.probes_only,
            token=recording.token,
            budget_bytes_per_s=recording.budget_bytes_per_s,
        )
        sinks.append(sender)
    return sinks
