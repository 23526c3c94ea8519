from enum import StrEnum

from pydantic import Field

from fleet.documents import Frozen, RuleError
from power.server_model import BLOOM_A100, ServerModel

MAX_SERVERS = 2_000
MAX_DAYS = 60.0  # POLCA covered six weeks
MAX_SEED = 2**31 - 1
POLCA_PEAK_SHARE = 0.79  # of the budget, at the peak of the row that it was made for (arXiv 2308.12908)
DAY_S = 86_400.0


class PolicyName(StrEnum):
    """The policies, least restrictive first."""

    NONE = "none"
    THRESHOLD_LOW = "threshold-low"
    THRESHOLD_ALL = "threshold-all"
    POLCA = "polca"
    LADDER = "ladder"


class FaultName(StrEnum):
    """What goes wrong: the first two from the worst minute on, the third all the time."""

    PLANNER_KILLED = "planner-killed"
    STALE_TELEMETRY = "stale-telemetry"
    IGNORED_ACTUATION = "ignored-actuation"


class RowRequest(Frozen):
    """One row, one policy, one seed."""

    servers: int = Field(ge=1, le=MAX_SERVERS, description="Of the row, those that train included.")
    budget_servers: int = Field(
        default=40, ge=4, le=MAX_SERVERS, description="The budget is that of so many servers: see `peak_share`."
    )
    budget_w: float | None = Field(default=None, ge=1, le=1e9, description="The budget outright.")
    peak_share: float = Field(
        default=POLCA_PEAK_SHARE,
        ge=0.01,
        le=1,
        description="Highest reading of `budget_servers` servers that serve, uncapped, over the budget.",
    )
    policy: PolicyName = PolicyName.LADDER
    days: float = Field(default=1.0, ge=0.01, le=MAX_DAYS)
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    training_share: float = Field(default=0.0, ge=0, le=1, description="Of the servers.")
    load: float | None = Field(
        default=None, gt=0, lt=2, description="Busy share of the servers at the peak of the day, in place of the usual."
    )
    fault: FaultName | None = None
    fault_s: float | None = Field(
        default=None,
        gt=0,
        le=1e7,
        description="How long it lasts; null: a killed planner stays dead, a meter is stale for 10 s.",
    )
    fault_share: float = Field(
        default=0.05, ge=0, le=1, description="Of the commands that ignored actuation silently loses."
    )
    guard: bool | None = Field(
        default=None,
        description="Whether the guard runs around the policy; null: around the ladder, and wherever there is a fault. "
        "Without the guard the brake engages at the budget, as POLCA describes it.",
    )
    server: ServerModel = Field(default=BLOOM_A100, description="The server model of the row.")
    decode_sensitivity: float | None = Field(
        default=None, ge=0, le=1, description="Slowdown of decoding by clock, in place of the server's own."
    )
    together: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Requests on a server at once, in every run; null: with traces as many as fit in memory, "
        "with the built-in mix one, but as many as fit in memory where the policy changes routing.",
    )

    @property
    def server_days(self) -> float:
        """Return the servers of the larger simulated row times the simulated days."""
        return max(self.servers, self.budget_servers if self.budget_w is None else 0) * self.days

    @property
    def guarded(self) -> bool:
        """Return whether the guard runs around the policy."""
        if self.guard is not None:
            return self.guard
        return self.policy is PolicyName.LADDER or self.fault is not None

    def changed(self, model: ServerModel) -> ServerModel:
        """Return the server with the requested values."""
        if self.together is not None and self.together > model.most_together:
            limit = f"must be at most {model.most_together}, which fit in the memory of {model.name}"
            raise RuleError([(("together",), f"{limit}, got {self.together}")])
        if self.decode_sensitivity is None:
            return model
        return model.model_copy(update={"token_sensitivity": self.decode_sensitivity})
