"""A router's settings beside its table."""

from typing import Annotated

from pydantic import Field

from deploy.router.table import RoutingTable
from fleet.documents import Frozen
from power.admission import LOW_PATIENCE_S

SERVE_NAME = "Router"  # of the deployment, in Ray Serve
TABLE_PATH = "/fleetwright/table"  # returns the version of the table in force

Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=1000)]


class RouterSettings(Frozen):
    """Limits of a router."""

    max_waiting: int = Field(default=1_000, ge=0, le=1_000_000, description="Requests in each priority's queue.")
    patience_s: float = Field(default=30.0, gt=0, le=3600, description="In the queue; then the response is 429.")
    routers: int = Field(default=1, ge=1, le=1_000, description="Replicas of this router, which share the slots.")
    max_body_bytes: int = Field(default=64 * 2**20, ge=1, le=2**31)
    expose_expert_maps: bool = Field(
        default=False, description="On Ray Serve: serve the replicas' expert map states at /fleetwright/expert-maps."
    )


class PowerSource(Frozen):
    """The guard of the row that the deployments draw from, and the power that one request adds."""

    url: Url = Field(description="Of the guard, whose /metrics has the row's power and the limits of prompts.")
    row: str = Field(min_length=1, max_length=200)
    step_w: float = Field(gt=0, le=1e6, description="Power that one prompt adds to its server.")
    every_s: float = Field(default=1.0, ge=0.1, le=60)
    patience_s: float = Field(default=LOW_PATIENCE_S, ge=0, le=3600, description="Then a low prompt counts as high.")


class RouterConfig(Frozen):
    """The configuration that may change at runtime: Serve's `user_config` of the deployment `SERVE_NAME`."""

    table: RoutingTable
    watts: PowerSource | None = None
