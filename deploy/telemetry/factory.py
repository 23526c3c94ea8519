"""Makes a recorder or a prober from a `Recording`, which an agent reads from a `RecordingFile`."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from deploy.common.credentials import read_token_file
from deploy.telemetry.exporters import dcgm_source, xpu_timer_source
from deploy.telemetry.flight_recorder import FlightSource
from deploy.telemetry.folder import RecordingFolder, refuse_other_run
from deploy.telemetry.inbox import Inbox
from deploy.telemetry.netlink import namespace_path
from deploy.telemetry.peers import Peers
from deploy.telemetry.ports import SYSFS, PortSource
from deploy.telemetry.prober import MAX_BYTES, MIN_BYTES, TICKS, Prober
from deploy.telemetry.processes import ProcessSource
from deploy.telemetry.ras import RasSource
from deploy.telemetry.recorder import Recorder, Sink, Sockets
from deploy.telemetry.sender import Sender
from deploy.telemetry.sockets import SocketSource
from deploy.telemetry.sources import Source, ThreadedSource
from faults.observations import Observation
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from fleet.documents import Frozen, RuleError, Violation

MAX_HELD: Final = 16  # polls
POLLED_EVERY_S: Final = 5.0  # by a prober: each poll is a dump; a new peer is found after this time at most
HELD_S: Final = 1.0  # polls without changes are written together this often
_PORTS: Final = {"http": 80, "https": 443}
OTHERS: Final = ("inbox", "flights", "infiniband", "dcgm", "xpu_timer")  # of the recorder's own sources
Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=1000)]
Port = Annotated[int, Field(ge=1, le=65_535)]


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
        ranks = range(self.peers.nodes * self.ranks_per_node)
        rank_node = tuple(rank // self.ranks_per_node for rank in ranks)
        return JobMap(self.peers.nodes, rank_node, hosts=self.peers.node_of)


def settle_memory() -> None:
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
            max_held=held,
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
        ticks=1 if recording.probe_bytes is None else TICKS,
    )


class ConnectedPeersSource:
    """A `Source` without observations that keeps a separate prober's peers up to date by occasional polls.

    After a failed poll the last peers stay.
    """

    name = "sockets"
    period_s = POLLED_EVERY_S

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    def poll(self, now_s: float) -> Sequence[Observation]:
        self._sockets.poll(now_s, wanted=True)
        return ()

    def close(self) -> None:
        self._sockets.close()


class RecordingFile(Frozen):
    """What to record of one job on this node, and where to send it."""

    peers: Annotated[dict[str, int], Field(min_length=1)]  # the job's nodes by address, this node included
    node: Annotated[int, Field(ge=0)] = 0
    ranks_per_node: Annotated[int, Field(ge=1, le=64)] = 1
    pids: dict[Annotated[int, Field(ge=0)], Annotated[int, Field(gt=0)]] = Field(default_factory=dict)  # by rank
    hz: Annotated[float, Field(ge=0.1, le=100)] = 4.0
    netns: str | None = None  # default: that of the first process, otherwise this one's
    ignored_ports: tuple[Port, ...] = ()
    inbox: Path | None = None
    flights: Path | None = None
    infiniband: bool = False
    dcgm: Url | None = None
    xpu_timer: Url | None = None
    probe_bytes: Annotated[int, Field(ge=MIN_BYTES, le=MAX_BYTES)] | None = None
    probe_every_s: Annotated[float, Field(ge=0.1, le=3600)] = 0.5
    probes_only: bool = False
    output: Path | None = None
    send: Url | None = None
    token_file: Path | None = None  # that the monitor expects
    budget_bytes_per_s: Annotated[float, Field(ge=100, le=1e6)] = 1000.0

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if self.output is None and self.send is None:
            yield ("output",), "no destination: give output, send, or both"
        if self.probes_only and self.probe_bytes is None:
            yield ("probe_bytes",), "expected the size of a train, since probes are the only source"
        for name in OTHERS if self.probes_only else ():
            if getattr(self, name):
                yield (name,), "leave it to the node's recorder: probes_only sends probes and nothing else"
        try:
            peers = Peers(self.peers)
        except RuleError as error:
            yield ("peers",), str(error)
        else:
            if violation := peers.violation_of(self.node):
                yield ("node",), f"{self.node} {violation}"

    def recording(self) -> Recording:
        return Recording(
            node=self.node,
            peers=Peers(self.peers),
            period_s=1.0 / self.hz,
            namespace=namespace_path(name=self.netns, pid=next(iter(self.pids.values()), None)),
            pid_of=self.pids,
            ranks_per_node=self.ranks_per_node,
            ignored_ports=frozenset(self.ignored_ports),
            inbox=self.inbox,
            probe_bytes=self.probe_bytes,
            probe_every_s=self.probe_every_s,
            probes_only=self.probes_only,
            infiniband=SYSFS if self.infiniband else None,
            flights=self.flights,
            dcgm=self.dcgm,
            xpu_timer=self.xpu_timer,
            folder=self.output,
            monitor_url=self.send,
            token=read_token_file(self.token_file) if self.token_file else None,
            budget_bytes_per_s=self.budget_bytes_per_s,
            held_s=HELD_S,
        )


def _own_ports(recording: Recording) -> frozenset[int]:
    """Return the monitor's port: the recorder's connections to it are not the job's."""
    if recording.monitor_url is None:
        return frozenset()
    parts = urlsplit(recording.monitor_url)
    return frozenset({parts.port or _PORTS.get(parts.scheme, 80)})


def _sources(recording: Recording, tally: ParseErrors, sockets: SocketSource) -> Iterator[Source]:
    if recording.probes_only:
        yield ConnectedPeersSource(sockets)
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
        connected_peers=sockets.connected_peers,
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
