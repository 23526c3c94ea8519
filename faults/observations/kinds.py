"""The kinds of observation.  Counters count from the start of what they count, never since the last look."""

from typing import NamedTuple, TypeAlias


class SocketPoll(NamedTuple):
    """An agent looked at its node's sockets: that many peers had one.  Without it, no sockets and no look are alike."""

    peers: int


class Socket(NamedTuple):
    """All connections to one peer, as the kernel counts them (tcp_info by INET_DIAG)."""

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
    """A thread in the rank says that the process runs, and how far it is."""

    entered: int  # the last collective that the rank called
    finished: int
    op: str | None
    step: int
    phase: str  # compute, comm, init, ...


class Collective(NamedTuple):
    """One collective of one rank: when it came, when it was through (None: not yet)."""

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
    """A one-way probe that the node sent and the peer has sent word of: what that one measured, by its clock."""

    size_bytes: int
    sent_s: float
    received_s: float
    tail_s: float | None = None


class Process(NamedTuple):
    """A rank's process as the kernel sees it."""

    pid: int
    state: str  # R, S, D, T, Z; "gone" when there is none
    cpu_s: float
    threads: int = 1
    waited_s: float | None = None  # of its first thread, ready to run, for a core; None where the kernel does not say


class FlightProgress(NamedTuple):
    """How far a rank is in one group, from a flight recorder's dump."""

    group: str
    ranks: tuple[int, ...]  # of the group; empty where the dump does not say
    entered: int
    started: int
    finished: int
    op: str | None  # the first that is not finished
    since_s: float | None  # when that was called


class OperationCounts(NamedTuple):
    """How many operations a rank has begun on a communicator (NCCL RAS), and what RAS thinks of the rank."""

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
    """What a GPU or its driver reports of itself."""

    gpu: str  # its number on the node, or its UUID
    what: str  # xid, ecc-double, ecc-single, row-remap, retired, nvlink, nvswitch, pcie, thermal, power
    code: int  # of xid and nvswitch the driver's number, 0: none so far; of the others which of its counters
    total: float


class OperationDuration(NamedTuple):
    """How long one finished operation took; when it was is not told (NCCL Inspector without its event trace)."""

    group: str
    seq: int
    op: str
    size_bytes: int
    took_s: float
    bus_gb_per_s: float


class ExternalFinding(NamedTuple):
    """What another watcher says of a rank: its conclusion, not a thing seen."""

    by: str  # xpu_timer
    what: str  # hang, matmul-tflops, ...
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
