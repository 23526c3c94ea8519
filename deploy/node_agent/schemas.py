"""HTTP schemas of the node agent, shared with the guard.  Ages and leases, not times, so clocks need not agree."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from deploy.node_agent.cap_lease import OnExpiry
from fleet.documents import Frozen
from power.controls import Phase

TELEMETRY_PATH = "/v1/telemetry"  # GET: status only
BEAT_PATH = "/v1/beat"  # POST: renews the guard's lease; returns telemetry
CLOCKS_PATH = "/v1/clocks"  # PUT
BRAKE_PATH = "/v1/brake"  # POST
GPUS_PATH = "/v1/gpus"  # GET: everything that is known of them
CAPS_PATH = "/v1/caps"  # PUT: request caps; DELETE /v1/caps/HOLDER: release
PHASE_PATH = "/v1/phase"  # PUT: a worker's phase

Clock = Annotated[float, Field(gt=0, le=1)]
Age = Annotated[float, Field(ge=0, le=1e6)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
LeaseSeconds = Annotated[float, Field(gt=0, le=3600)]
Watts = Annotated[float, Field(gt=0, le=1e5)]
Megahertz = Annotated[int, Field(gt=0, le=100_000)]


class PhaseName(StrEnum):
    IDLE = "idle"
    TOKEN = "token"  # noqa: S105 - a phase of serving
    PROMPT = "prompt"
    TRAINING = "training"
    PARKED = "parked"

    @property
    def phase(self) -> Phase:
        return Phase[self.name]


class Beat(Frozen):
    """A guard's heartbeat.  Every command is one too."""

    guard: Name
    lease_s: LeaseSeconds


class ClocksCommand(Beat):
    token_clock: Clock
    prompt_clock: Clock


class BrakeCommand(Beat):
    """Engage or release the power brake."""

    on: bool


class NodeStatus(Frozen):
    """The part of a node's status that every response has."""

    server: Name
    epoch: Annotated[int, Field(ge=0)]  # driver loads; a reloaded driver lost every cap
    phase: PhaseName


class NodeTelemetry(NodeStatus):
    power_w: Annotated[float, Field(ge=0, le=1e7)]
    age_s: Age  # of the power and of the enforced clocks
    token_clock: Clock
    prompt_clock: Clock
    braked: bool
    holder: str | None = None  # the guard that holds the node
    expired: bool = True  # whether the node is on its own


class MeterReading(Frozen):
    power_w: Annotated[float, Field(ge=0, le=1e9)]
    age_s: Age


class CapsBody(Frozen):
    """Upper bounds; null: no bound."""

    power_limit_w: Watts | None = None
    clock_mhz: Megahertz | None = None


class CapsRequest(CapsBody):
    """A request for caps with a lease.  Repeating the request renews the lease."""

    holder: Name
    lease_s: LeaseSeconds
    clock_share: Annotated[float, Field(gt=0, lt=1)] | None = None  # of each GPU's own full clock
    on_expiry: OnExpiry = OnExpiry.SAFE
    gpus: Annotated[tuple[Name, ...], Field(max_length=128)] = ()  # UUIDs; empty: all GPUs of the node


class PhaseRequest(Frozen):
    worker: Name
    phase: PhaseName
    lease_s: LeaseSeconds


class ActuationMode(StrEnum):
    """Whether an agent writes, and whether a guard commands."""

    OBSERVE = "observe"  # reads, decides, logs and counts; sends nothing
    APPLY = "apply"


class GpuReport(Frozen):
    uuid: str
    name: str
    bus_id: str | None
    age_s: Age | None  # of all values; null: it never responded
    error: str | None
    power_w: float | None
    energy_j: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    utilization: float | None
    slowed_by: tuple[str, ...]
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    min_w: float | None
    max_w: float | None
    default_w: float | None
    clocks_mhz: tuple[int, ...]
    found: CapsBody
    planned: CapsBody
    applied: CapsBody
    enforced: CapsBody
    enforced_share: float | None  # of the full clock, at the enforced caps; null: it does not respond
    power_state: str
    clock_state: str


class LeaseReport(CapsBody):
    holder: str
    uuid: str
    expires_in_s: float | None  # negative: expired; null: never expires
    on_expiry: OnExpiry


class NodeReport(NodeStatus):
    driver: str
    act: ActuationMode
    clock_is_read_back: bool  # else it counts as enforced until a GPU runs above it
    phase_source: str
    gpus: tuple[GpuReport, ...]
    leases: tuple[LeaseReport, ...]
    counts: dict[str, int]  # by cap and event
