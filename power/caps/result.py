"""A cap plan: per period the clocks of each class, the power, limit and price of each feed, and conflicts."""

from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import SolveStatus

ROUNDING = 1e-9


class ClassCaps(Frozen):
    """What the servers of one class run at."""

    name: str
    group: str
    feed: str = Field(description="That its servers hang on.")
    servers: int
    slack: float = Field(description="How much longer a request may take, as a share.")
    token_clock: float
    prompt_clock: float
    slowdown: float = Field(description="Of a request, at these clocks.")
    loss: float = Field(description="Servers with their slack used up.")
    lost_token_clock: float | None = Field(default=None, description="When a side of its feeds is lost.")
    lost_prompt_clock: float | None = None

    @property
    def within_slack(self) -> bool:
        """Return whether the slowdown of the requests is within the slack."""
        return self.slowdown - 1 <= self.slack * (1 + ROUNDING)


class FeedCaps(Frozen):
    """One feed in one period."""

    name: str
    limit_w: float | None = Field(description="Limit of the feed; absent: not known.")
    uncapped_peak_w: float = Field(description="At full clock, at the risk.")
    peak_w: float = Field(description="At the clocks chosen, at the risk.")
    budget_w: float | None = Field(description="Firm: the budgets below a feed add up to no more than its own.")
    budget_risk: float | None = Field(description="Chance that it would draw more than that budget at a moment.")
    loss_per_kw: float = Field(default=0.0, ge=0, description="Loss that one more kW would save, by the relaxation.")
    lost_limit_w: float | None = Field(default=None, description="When a side is lost, here or above.")
    lost_peak_w: float | None = None
    lost_budget_w: float | None = None
    lost_loss_per_kw: float = 0.0


class FeedConflict(Frozen):
    """A feed that exceeds its limit with every choice of clocks."""

    period: int
    feed: str
    on_one_side: bool
    missing_w: float
    reason: str


class PeriodCaps(Frozen):
    """One period."""

    period: int
    status: SolveStatus
    loss: float | None
    bound: float | None = Field(description="Proven: no choice loses less.")
    lost_loss: float | None = Field(default=None, description="While a side is lost.")
    binding: tuple[str, ...] = Field(description="Feeds on which a watt is worth something, the dearest first.")
    classes: tuple[ClassCaps, ...]
    feeds: tuple[FeedCaps, ...]


class CapPlan(Frozen):
    """All periods.  Without a choice in any of them (`infeasible`, `time_limit`) nothing is to be changed."""

    tree: str
    risk: float
    status: SolveStatus
    loss: float | None = Field(description="Mean over the periods, the time on one side included.")
    bound: float | None
    gap: float | None = Field(description="(loss - bound) / loss.")
    binding: str | None = Field(description="The feed with the highest price times limit over the day.")
    period_h: float = Field(description="Length of a period.")
    periods: tuple[PeriodCaps, ...]
    conflicts: tuple[FeedConflict, ...] = ()
    solve_s: float = 0.0

    def feed(self, name: str, period: int) -> FeedCaps:
        return next(feed for feed in self.periods[period].feeds if feed.name == name)
