"""What is said to the actors, and what they say of themselves.

It travels as plain JSON: an upgrade has two versions of this module speak to each other.  No secret is among it, for
Ray keeps an actor's arguments as long as the actor lives, where whoever may use the cluster can read them: a token is
named by a file, or comes from the environment of the node.
"""

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from api.client.transport import DEFAULT_URL
from fleet.documents import Frozen


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("expected an absolute path, as the cluster's nodes have it")
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


class GpuLook(StrEnum):
    """Which GPUs watchers look at."""

    NONE = "none"
    AUTO = "auto"  # by whichever driver answers, on nodes that Ray believes to have GPUs
    SIMULATED = "simulated"  # as many as Ray believes in


class WatchSettings(Frozen):
    """What a watcher does on its node."""

    hz: Annotated[float, Field(ge=0.1, le=100.0)] = 4.0
    send: HttpUrl | None = None  # URL of a job's watcher, `fleetwright faults watch`
    send_token_file: RemotePath | None = None
    folder: RemotePath | None = None  # a recording, on each node
    inbox: RemotePath | None = None  # what ranks say of themselves: a Unix socket on each node
    ranks_per_node: Annotated[int, Field(ge=1, le=64)] = 8
    gpus: GpuLook = GpuLook.AUTO


class HostSettings(Frozen):
    """What a controller on Ray is told."""

    url: HttpUrl = DEFAULT_URL  # as the actor reaches it
    token_file: RemotePath | None = None  # as the actor's node has it; else FLEETWRIGHT_TOKEN[_FILE] of that node
    period_s: Annotated[float, Field(ge=0.1, le=3600.0)] = 5.0
    lease_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 15.0
    observe_only: bool = False
    kubernetes: bool = False  # RayClusters too, on the cluster that the actor's node takes for its own
    kubeconfig: RemotePath | None = None  # the same, with this kubeconfig of that node
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0  # 0: none
    watch: WatchSettings | None = WatchSettings()  # None: no watchers


class WatchOrder(Frozen):
    """What a watcher is told at each turn: the same again changes nothing."""

    index: int
    node_name: str
    peers: dict[str, int] = Field(default_factory=dict)  # nodes by address
    ignored_ports: tuple[int, ...] = ()
    gpus: int = 0
    accelerator: str | None = None
    settings: WatchSettings


class HostState(StrEnum):
    """What became of a controller's loop."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"  # it is tried again
    STOPPED = "stopped"


class _Said(BaseModel):
    """What another version may say more of."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class WorkerReport(_Said):
    """One of Ray's workers on a node."""

    rank: int
    pid: int
    name: str
    state: str  # as the kernel calls it: R, S, D, T, ...


class WatcherReport(_Said):
    """What a watcher says of its node."""

    node_id: str
    node_name: str = ""
    index: int = 0
    pid: int | None = None
    answers: bool = True
    looks: int = 0
    observations: int = 0
    failures: dict[str, int] = {}
    peers: int = 0
    workers: tuple[WorkerReport, ...] = ()
    workers_left_out: int = 0
    gpus: dict[str, Any] | None = None  # as `GET /v1/gpus` of an agent
    message: str | None = None

    @property
    def stopped(self) -> int:
        """Workers that somebody stopped: alive to Ray, and doing nothing."""
        return sum(worker.state in {"T", "t"} for worker in self.workers)


class HostReport(_Said):
    """What a controller says of itself."""

    version: str
    state: HostState
    standing: str
    holder: str
    pid: int
    node_id: str
    restarted: bool = False
    since: datetime | None = None  # it leads
    rounds: int = 0
    rounds_failed: int = 0
    last_round_age_s: float | None = None
    error: str | None = None
    settings: dict[str, Any]
    watchers: tuple[WatcherReport, ...] = ()
