"""An observation, its kinds, and the times among its values.  Counters are cumulative."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias


class SocketPoll(NamedTuple):
    """A poll of the recorder's sockets, with the number of peers.  Separates "no sockets" from "no poll"."""

    peers: int


class Socket(NamedTuple):
    """All connections to one peer, as kernel counters (tcp_info by INET_DIAG)."""

    connections: int
    acked_bytes: int
    received_bytes: int
    busy_us: int  # time with data outstanding; acked_bytes over it is the bandwidth in use
    rwnd_limited_us: int
    sndbuf_limited_us: int
    rtt_us: int
    min_rtt_us: int
    cwnd: int
    unacked: int  # packets
    write_queue_bytes: int
    read_queue_bytes: int  # arrived, not yet read by the process
    unsent_bytes: int
    retransmits: int
    timer_retransmits: int
    backoff: int
    rto_us: int
    since_sent_ms: int
    since_received_ms: int


class Heartbeat(NamedTuple):
    """Progress of a rank, reported by a thread in the rank."""

    entered: int  # the last collective that the rank called
    finished: int
    op: str | None
    step: int
    phase: str  # compute, comm, init, ...


class Collective(NamedTuple):
    """One collective of one rank: its arrival and its end (None: not ended)."""

    seq: int
    op: str
    size_bytes: int
    arrived_s: float
    finished_s: float | None
    step: int | None = None
    group: str = ""


class PointToPoint(NamedTuple):
    """A point-to-point exchange: received from `source` (the observation's peer), sent to `to`."""

    source: int
    to: int
    size_bytes: int
    called_s: float
    received_s: float
    sent_s: float
    step: int | None = None


class Probe(NamedTuple):
    """A one-way probe that arrived from the peer."""

    size_bytes: int
    sent_s: float
    received_s: float
    tail_s: float | None = None  # from when half of its datagrams had come until all had, by the receiver's clock alone


class ProbeReturned(NamedTuple):
    """A one-way probe that the node sent, measured by the peer's clock and returned in its reply."""

    size_bytes: int
    sent_s: float
    received_s: float
    tail_s: float | None = None


class Process(NamedTuple):
    """A rank's process in /proc."""

    pid: int
    state: str  # R, S, D, T, Z; "gone" without a process
    cpu_s: float
    threads: int = 1
    waited_s: float | None = None  # of its main thread, runnable, for a core; None if the kernel does not report it


class FlightProgress(NamedTuple):
    """The progress of a rank in one group, from a Flight Recorder dump.

    Of a pair of ranks (`"43 0->12"`), the numbers count its unfinished operations only: the n-th unfinished send
    belongs to the n-th unfinished receive.
    """

    group: str
    ranks: tuple[int, ...]  # of the group, of a pair the sender first; empty if the dump does not have them
    entered: int
    started: int
    finished: int
    op: str | None  # the first unfinished one
    since_s: float | None  # when it was called
    called_s: float | None = None  # when the newest operation was called, finished or not
    description: str = ""  # of the group: TENSOR_MODEL_PARALLEL_GROUP


class OperationCounts(NamedTuple):
    """The operations that a rank has started on a communicator (NCCL RAS), and the rank's state in RAS."""

    group: str
    size: int
    ops: tuple[tuple[str, int], ...]
    state: str  # ok, error, aborted, missing, unresponsive, dead


class Port(NamedTuple):
    """Counters of one InfiniBand or RoCE port."""

    device: str
    port: int
    state: str
    rate_gbps: float
    counters: tuple[tuple[str, int], ...]


class DeviceCounter(NamedTuple):
    """A counter of a GPU or its driver."""

    gpu: str  # its number on the node, or its UUID
    name: str  # xid, ecc-double, ecc-single, row-remap, retired, nvlink, nvswitch, pcie, thermal, power
    code: int  # of xid and nvswitch the driver's number, 0: none so far; otherwise the index of the counter
    total: float


class OperationDuration(NamedTuple):
    """The duration of a finished operation, without its time (NCCL Inspector without its event trace)."""

    group: str
    seq: int
    op: str
    size_bytes: int
    took_s: float
    bus_gb_per_s: float


class ExternalFinding(NamedTuple):
    """A finding of another tool about a rank."""

    by: str  # xpu_timer
    name: str  # hang, matmul-tflops, ...
    value: float


Values: TypeAlias = (
    SocketPoll
    | Socket
    | Heartbeat
    | Collective
    | PointToPoint
    | Probe
    | ProbeReturned
    | Process
    | FlightProgress
    | OperationCounts
    | Port
    | DeviceCounter
    | OperationDuration
    | ExternalFinding
)


class Observation(NamedTuple):
    """One observation.  Its kind is the type of its values.

    Nodes and ranks are indices of the job; readers convert names.
    """

    at_s: float  # when the observer knew it, by that node's clock
    node: int
    values: Values
    rank: int | None = None
    peer: int | None = None  # the node at the other end, if any

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return all ranks of an observation: its own, and those in its values."""
        own = () if self.rank is None else (self.rank,)
        if isinstance(self.values, PointToPoint):
            return (*own, self.values.source, self.values.to)
        return (*own, *self.values.ranks) if isinstance(self.values, FlightProgress) else own


TIME_FIELDS: Mapping[type[Values], tuple[str, ...]] = {
    Collective: ("arrived_s", "finished_s"),
    PointToPoint: ("called_s", "received_s", "sent_s"),
    Probe: ("sent_s", "received_s"),
    ProbeReturned: ("sent_s", "received_s"),
    FlightProgress: ("since_s", "called_s"),
}


def on_clock_of(observation: Observation, zero_s: float) -> Observation:
    """Return the observation in seconds after `zero_s`."""
    values: Any = observation.values
    known = {name: getattr(values, name) for name in TIME_FIELDS.get(type(values), ())}
    moved = {name: at_s - zero_s for name, at_s in known.items() if at_s is not None}
    return observation._replace(at_s=observation.at_s - zero_s, values=values._replace(**moved) if moved else values)


def times_of(observation: Observation) -> tuple[float, ...]:
    """Return all times: when the observation became known, and those in its values."""
    inside = (getattr(observation.values, name) for name in TIME_FIELDS.get(type(observation.values), ()))
    return observation.at_s, *(at_s for at_s in inside if at_s is not None)
