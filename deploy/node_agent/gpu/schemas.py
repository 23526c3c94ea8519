"""What is said about caps over HTTP.  Ages and leases, not times: no two clocks need agree."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from deploy.node_agent.gpu.cap_requests import OnLapse
from deploy.node_agent.schemas import Age, LeaseSeconds, Name, PhaseName
from fleet.documents import Frozen

GPUS_PATH = "/v1/gpus"  # GET: everything that is known of them
CAPS_PATH = "/v1/caps"  # PUT: hold these; DELETE /v1/caps/HOLDER: want nothing any more
PHASE_PATH = "/v1/phase"  # PUT: a worker's word

Watts = Annotated[float, Field(gt=0, le=1e5)]
Megahertz = Annotated[int, Field(gt=0, le=100_000)]


class CapsBody(Frozen):
    """Upper bounds; none bounds nothing."""

    power_limit_w: Watts | None = None
    clock_mhz: Megahertz | None = None


class CapsRequest(CapsBody):
    """Hold these caps for so long.  The same again is the sign of life."""

    holder: Name
    lease_s: LeaseSeconds
    clock_share: Annotated[float, Field(gt=0, lt=1)] | None = None  # of each GPU's own full clock
    on_lapse: OnLapse = OnLapse.SAFE
    gpus: Annotated[tuple[Name, ...], Field(max_length=128)] = ()  # UUIDs; none: all of the node


class PhaseRequest(Frozen):
    """What a worker on this node is doing, believed for so long."""

    worker: Name
    phase: PhaseName
    lease_s: LeaseSeconds


class Act(StrEnum):
    """Whether the agent writes."""

    OBSERVE = "observe"
    APPLY = "apply"


class GpuReport(Frozen):
    """One GPU."""

    uuid: str
    name: str
    bus_id: str | None
    age_s: Age | None  # of all that was read; none: it never answered
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
    least_w: float | None
    most_w: float | None
    default_w: float | None
    clocks_mhz: tuple[int, ...]
    found: CapsBody
    planned: CapsBody
    applied: CapsBody
    enforced: CapsBody
    enforced_share: float | None  # of the full clock, that what is enforced leaves; none: it does not answer
    power_state: str
    clock_state: str


class OrderReport(CapsBody):
    """One holder's word about one GPU."""

    holder: str
    uuid: str
    lapses_in_s: float | None  # below 0: it has lapsed; none: never by itself
    on_lapse: OnLapse


class NodeReport(Frozen):
    """All of them."""

    server: str
    driver: str
    act: Act
    epoch: int
    clock_is_read_back: bool  # else it counts as enforced until a GPU is seen to run above it
    phase: PhaseName
    phase_source: str
    gpus: tuple[GpuReport, ...]
    orders: tuple[OrderReport, ...]
    counts: dict[str, int]  # by lever and event
