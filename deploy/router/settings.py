"""What an operator says of a router beside its table."""

from typing import Annotated

from pydantic import Field

from deploy.router.scheduler import DeskSettings
from deploy.router.table import RoutingTable
from fleet.documents import Frozen
from power.admission import LOW_PATIENCE_S

SERVE_NAME = "Router"  # of the deployment, in Ray Serve
TABLE_PATH = "/fleetwright/table"  # where it tells the version of the table in force

Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=1000)]


class RouterSettings(Frozen):
    """Bounds."""

    most_waiting: int = Field(default=1_000, ge=0, le=1_000_000, description="Requests in the queue of a priority.")
    patience_s: float = Field(default=30.0, gt=0, le=3600, description="In the queue; then the answer is 429.")
    routers: int = Field(
        default=1, ge=1, le=1_000, description="Replicas of this router: each has so much of the room."
    )
    most_body_bytes: int = Field(default=64 * 2**20, ge=1, le=2**31)
    tell_expert_maps: bool = Field(
        default=False, description="On Ray Serve: tell at /fleetwright/expert-maps what replicas say of theirs."
    )

    @property
    def desk(self) -> DeskSettings:
        """Those of the queues."""
        return DeskSettings(most_waiting=self.most_waiting, patience_s=self.patience_s)


class WattsFrom(Frozen):
    """The guard of the row that the deployments draw from, and what one request adds to it."""

    url: Url = Field(
        description="Of the guard, which tells on /metrics what the row draws and what prompts are held to."
    )
    row: str = Field(min_length=1, max_length=200)
    step_w: float = Field(gt=0, le=1e6, description="That one prompt adds to its server.")
    every_s: float = Field(default=1.0, ge=0.1, le=60)
    patience_s: float = Field(
        default=LOW_PATIENCE_S, ge=0, le=3600, description="Then a low prompt is held as high ones."
    )


class RouterConfig(Frozen):
    """What may change while it runs: Serve's `user_config` of the deployment `SERVE_NAME`."""

    table: RoutingTable
    watts: WattsFrom | None = None
