"""What guard and agents say to each other over HTTP.  Ages, not times: no two clocks need agree."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen
from power.controls import Phase

TELEMETRY_PATH = "/v1/telemetry"  # GET: look only
BEAT_PATH = "/v1/beat"  # POST: the guard lives; answers with telemetry
CLOCKS_PATH = "/v1/clocks"  # PUT
BRAKE_PATH = "/v1/brake"  # POST

Clock = Annotated[float, Field(gt=0, le=1)]
Age = Annotated[float, Field(ge=0, le=1e6)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
LeaseSeconds = Annotated[float, Field(gt=0, le=3600)]


class PhaseName(StrEnum):
    """What a server is doing."""

    IDLE = "idle"
    TOKEN = "token"  # noqa: S105 - a phase of serving
    PROMPT = "prompt"
    TRAINING = "training"
    PARKED = "parked"

    @property
    def phase(self) -> Phase:
        """As rooms call it."""
        return Phase[self.name]


class Beat(Frozen):
    """A guard's sign of life, which every order is as well."""

    guard: Name
    lease_s: LeaseSeconds


class ClocksOrder(Beat):
    """Hold these clocks."""

    token_clock: Clock
    prompt_clock: Clock


class BrakeOrder(Beat):
    """Engage the power brake, or let it go."""

    on: bool


class NodeTelemetry(Frozen):
    """What a node says of itself."""

    server: Name
    power_w: Annotated[float, Field(ge=0, le=1e7)]
    age_s: Age  # of the power and of what is enforced
    token_clock: Clock
    prompt_clock: Clock
    braked: bool
    epoch: Annotated[int, Field(ge=0)]
    phase: PhaseName
    holder: str | None = None  # the guard that is obeyed
    lapsed: bool = True  # whether the node is on its own


class MeterReading(Frozen):
    """What a meter of a whole row says."""

    power_w: Annotated[float, Field(ge=0, le=1e9)]
    age_s: Age
