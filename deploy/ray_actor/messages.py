"""Names of the actors, their settings and their reports.

    NAME.gGENERATION                      a controller; each upgrade creates the next generation
    NAME.gGENERATION.watch.INDEX.NODE     its node actor on a node; INDEX is the node's index in recordings

Settings and reports are plain JSON, because two versions of this module communicate during an upgrade.  They contain no
secret, because every user of the cluster can read an actor's arguments: a token is a file name, or comes from the
node's environment.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from api.client.transport import DEFAULT_URL
from fleet.documents import Frozen

_HOST = re.compile(r"(?P<name>[a-z0-9-]+)\.g(?P<generation>[0-9]{1,9})")
_NODE_ACTOR = re.compile(rf"{_HOST.pattern}\.watch\.(?P<index>[0-9]{{1,5}})\.(?P<node_id>[0-9a-f]+)")


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("expected an absolute path on the cluster's nodes")
    return path


def _http(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("expected http://HOST[:PORT] or https://HOST[:PORT], without a user")
    return url


RemotePath = Annotated[Path, AfterValidator(_absolute)]
HttpUrl = Annotated[str, AfterValidator(_http)]


class GpuSource(StrEnum):
    NONE = "none"
    AUTO = "auto"  # by the driver that responds, on nodes with Ray GPUs
    SIMULATED = "simulated"  # as many as the node has Ray GPUs


class NodeActorSettings(Frozen):
    """The work of a node actor."""

    hz: Annotated[float, Field(ge=0.1, le=100.0)] = 4.0
    send: HttpUrl | None = None  # URL of a job's fault monitor, `fleetwright faults monitor`
    send_token_file: RemotePath | None = None
    folder: RemotePath | None = None  # a recording, on each node
    inbox: RemotePath | None = None  # a Unix socket on each node for reports of ranks
    ranks_per_node: Annotated[int, Field(ge=1, le=64)] = 8
    gpus: GpuSource = GpuSource.AUTO


class ControllerActorSettings(Frozen):
    """The settings of a controller on Ray."""

    url: HttpUrl = DEFAULT_URL  # reachable from the actor
    token_file: RemotePath | None = None  # on the actor's node; else FLEETWRIGHT_TOKEN[_FILE] of that node
    period_s: Annotated[float, Field(ge=0.1, le=3600.0)] = 5.0
    lease_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 15.0
    observe_only: bool = False
    kubernetes: bool = False  # drive targets on Kubernetes too, on the cluster of the actor's node
    kubeconfig: RemotePath | None = None  # the same, with this kubeconfig of that node
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0  # 0: none
    watch: NodeActorSettings | None = NodeActorSettings()  # None: no node actors


class NodeActorConfig(Frozen):
    """The configuration of a node actor, sent at each turn; an unchanged one has no effect."""

    index: int
    node_name: str
    peers: dict[str, int] = Field(default_factory=dict)  # nodes by address
    ignored_ports: tuple[int, ...] = ()
    gpus: int = 0
    accelerator: str | None = None
    settings: NodeActorSettings


class LoopState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"  # and will be restarted
    STOPPED = "stopped"


class _Report(BaseModel):
    """A report; another version may add fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class WorkerReport(_Report):
    rank: int
    pid: int
    name: str
    state: str  # as the kernel calls it: R, S, D, T, ...


class NodeReport(_Report):
    node_id: str
    node_name: str = ""
    index: int = 0
    pid: int | None = None
    responds: bool = True
    polls: int = 0
    observations: int = 0
    failures: dict[str, int] = {}
    peers: int = 0
    workers: tuple[WorkerReport, ...] = ()
    workers_left_out: int = 0
    gpus: dict[str, Any] | None = None  # in the form of an agent's `GET /v1/gpus`
    message: str | None = None

    @property
    def stopped(self) -> int:
        """Return the number of stopped workers, which Ray considers alive."""
        return sum(worker.state in {"T", "t"} for worker in self.workers)


class ControllerReport(_Report):
    version: str
    state: LoopState
    role: str
    holder: str
    pid: int
    node_id: str
    restarted: bool = False
    since: datetime | None = None  # of leading
    reconciles: int = 0
    reconciles_failed: int = 0
    last_reconcile_age_s: float | None = None
    error: str | None = None
    settings: dict[str, Any]
    node_actors: tuple[NodeReport, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class ControllerName:
    name: str
    generation: int

    def __str__(self) -> str:
        return f"{self.name}.g{self.generation}"


@dataclass(frozen=True, slots=True, order=True)
class NodeActorName:
    host: ControllerName
    index: int
    node_id: str

    def __str__(self) -> str:
        return f"{self.host}.watch.{self.index}.{self.node_id}"


def controllers_among(names: Iterable[str]) -> list[ControllerName]:
    found = (_HOST.fullmatch(name) for name in names)
    return sorted(ControllerName(each["name"], int(each["generation"])) for each in found if each)


def node_actors_among(names: Iterable[str]) -> list[NodeActorName]:
    found = (_NODE_ACTOR.fullmatch(name) for name in names)
    return sorted(
        NodeActorName(ControllerName(each["name"], int(each["generation"])), int(each["index"]), each["node_id"])
        for each in found
        if each
    )
