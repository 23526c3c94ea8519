"""The recording of an agent as a file: one field for each option of `fleetwright faults record`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from deploy.common.token_file import read_token_file
from deploy.telemetry.factory import HELD_S, Recording
from deploy.telemetry.netlink import namespace_path
from deploy.telemetry.peers import Peers
from deploy.telemetry.ports import SYSFS
from deploy.telemetry.prober import MAX_BYTES, MIN_BYTES
from fleet.documents import Frozen, RuleError, Violation

OTHERS: Final = ("inbox", "flights", "infiniband", "dcgm", "xpu_timer")  # of the recorder's own sources

Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=1000)]
Port = Annotated[int, Field(ge=1, le=65_535)]


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
        """Return the recorder's arguments.  Raise TokenFileError."""
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
