"""Planning loops: the continuous planning of one target or of a group of targets.

Each window the controller estimates the demand of the targets, forecasts it over the warm-up time, and decides whether
the running replicas stay.  A new plan is stored with its inputs; in mode `apply` it becomes the plan of the targets,
which the controller carries out under their own modes, approvals, limits and the global freeze.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, JsonValue, model_validator

from api.schemas.names import Name, PartName, PlanId, Replicas, Text
from api.schemas.projects import DEFAULT_PROJECT
from api.schemas.targets import Mode
from fleet.documents import Frozen, RuleError, Violation
from planner.request import Name as WorkloadName
from planner.request import PlanRequest

MAX_HORIZON_WINDOWS = 32  # that a forecast reaches
Share = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]


class PlanningLoopSpec(Frozen):
    """An operator's specification of a planning loop."""

    request: PlanRequest = Field(
        description="What to plan; the observed rates and sizes replace those of its workloads, on the edges of their "
        "buckets."
    )
    targets: dict[WorkloadName, Name] = Field(
        min_length=1, max_length=100, description="Workload of the request -> target that serves it, with `demand`."
    )
    mode: Mode = Mode.OBSERVE
    window_s: Annotated[float, Field(ge=5.0, le=1_800.0)] = 60.0
    warm_up_s: Annotated[float, Field(ge=0.0, le=7_200.0)] = Field(
        default=300.0, description="From a decision until new replicas serve; the demand is forecast this far ahead."
    )
    quantile: Annotated[float, Field(ge=0.5, le=0.999)] = Field(
        default=0.95, description="Quantile of the forecast demand that the plan serves."
    )
    band: Annotated[float, Field(ge=0.0, le=10.0)] = Field(
        default=0.03, description="A cost above the proven bound by up to this share is not worth a change."
    )
    patience: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=3, description="Windows in a row that a saving must last before the plan shrinks; growth does not wait."
    )
    size_windows: Annotated[int, Field(ge=1, le=100)] = Field(
        default=6, description="Windows whose request sizes are planned with."
    )

    @model_validator(mode="after")
    def _targets_are_of_workloads(self) -> "PlanningLoopSpec":
        names = {workload.name for workload in self.request.workloads}
        violations: list[Violation] = [
            (("targets", name), f"allowed: {', '.join(sorted(names))}") for name in sorted(self.targets.keys() - names)
        ]
        violations += [
            (("targets",), f"is required for the workload {name!r}") for name in sorted(names - self.targets.keys())
        ]
        violations += [
            (("request", field), "is not allowed here: a planning loop plans for the observed demand alone")
            for field in ("replay", "horizon", "current")
            if getattr(self.request, field) is not None
        ]
        if self.request.rate_scales:
            violations.append((("request", "rate_scales"), "is not allowed here: the planning loop sets them"))
        if self.warm_up_s > (longest_s := (MAX_HORIZON_WINDOWS - 1) * self.window_s):
            violations.append((("warm_up_s",), f"allowed: at most {longest_s:g} with this window_s, 31 windows"))
        if len(set(self.targets.values())) != len(self.targets):
            violations.append((("targets",), "two workloads name the same target; allowed: one for each"))
        RuleError.raise_for(violations)
        return self


class PlanningLoop(Frozen):
    """A stored planning loop."""

    name: Name
    version: int = Field(ge=1)
    spec: PlanningLoopSpec
    project: Name = DEFAULT_PROJECT


class LoopPhase(StrEnum):
    """The phase of a planning loop after its last window."""

    WARMING_UP = "warming_up"  # no whole window of demand yet
    STEADY = "steady"  # the running replicas stay
    OBSERVED = "observed"  # a new plan is due, and the mode only observes
    RECOMMENDED = "recommended"  # a new plan is stored, and the mode does not set it
    APPLIED = "applied"  # a new plan is the plan of the targets
    HOLDING = "holding"  # the demand or the stock is not usable: the last decision stays
    FROZEN = "frozen"  # a new plan is ready, a freeze stops it
    FAILED = "failed"  # no plan was found, or a service did not respond


class SizeStatistics(Frozen):
    """Estimated tokens per request."""

    mean: NonNegative
    p50: NonNegative
    p99: NonNegative
    p99_at_least: NonNegative = Field(description="Lower edge of the bucket of the 99th percentile.")
    p99_at_most: NonNegative | None = Field(description="Upper edge of that bucket; null: it has none.")


class LatencyStatistics(Frozen):
    """Estimated seconds."""

    mean: NonNegative
    p50: NonNegative
    p99: NonNegative


class WorkloadDemand(Frozen):
    """The demand of one workload in the last usable window."""

    arrivals_rps: NonNegative
    completions_rps: NonNegative
    forecast_rps: NonNegative = Field(description="The quantile over the warm-up time that is planned for.")
    input_tokens: SizeStatistics | None = None
    output_tokens: SizeStatistics | None = None
    ttft_s: LatencyStatistics | None = None
    tpot_s: LatencyStatistics | None = None
    running: NonNegative | None = Field(default=None, description="Requests in the engines.")
    queued: NonNegative | None = Field(default=None, description="Requests that wait in the engines.")
    kv_usage: Share | None = Field(default=None, description="Mean use of the KV caches.")
    prefix_hit_rate: Share | None = None
    error_rate: Share | None = None


class DriftReport(Frozen):
    """Observed against predicted latency of the replicas of one part."""

    tpot_ratio: NonNegative | None = Field(description="Observed over predicted; null: not enough requests.")
    ttft_ratio: NonNegative | None
    rate_scale: NonNegative = Field(description="Factor on the predicted rates that is planned with; 1: as predicted.")
    needs_refit: bool = Field(description="The observation is outside the interval of the prediction.")


class DriftMemory(Frozen):
    """Mean logarithms of observed over predicted latencies, and the requests behind them."""

    tpot_log: float = 0.0
    ttft_log: float = 0.0
    requests: NonNegative = 0.0


class LoopState(Frozen):
    """The controller's state between two windows."""

    forecasts: dict[WorkloadName, JsonValue] = Field(default_factory=dict, max_length=100)
    sizes: dict[WorkloadName, tuple[tuple[NonNegative, ...], ...]] = Field(
        default_factory=dict, max_length=100, description="Requests per bucket of the last windows, the newest last."
    )
    saving_windows: Annotated[int, Field(ge=0)] = 0
    decided_for: AwareDatetime | None = Field(default=None, description="End of the last window that was decided on.")
    plan_id: PlanId | None = Field(default=None, description="The last decision.")
    drifts: dict[PartName, DriftMemory] = Field(default_factory=dict, max_length=1_000)


class PlanningLoopStatus(Frozen):
    """The controller's report on the last window of a planning loop."""

    phase: LoopPhase
    observed_at: AwareDatetime
    window_end: AwareDatetime | None = None
    message: Text | None = None
    problems: Annotated[tuple[Text, ...], Field(max_length=50)] = Field(
        default=(), description="Why the demand or the stock of the window is not usable."
    )
    demand: dict[WorkloadName, WorkloadDemand] = Field(default_factory=dict, max_length=100)
    wanted: dict[Name, dict[PartName, Replicas]] = Field(
        default_factory=dict, max_length=100, description="Target -> part -> replicas of the last decision."
    )
    plan_id: PlanId | None = Field(default=None, description="The plan of the last decision.")
    drift: dict[PartName, DriftReport] = Field(default_factory=dict, max_length=1_000)
    state: LoopState | None = Field(default=None, description="Null in a report: the stored state stays unchanged.")


class ReportedLoopStatus(Frozen):
    """The last report on one planning loop, in a list: without `state`."""

    planning_loop: Name
    status: PlanningLoopStatus


class LoopPlanRequest(Frozen):
    """The controller's decision: the plan that the targets of a planning loop get."""

    plan_id: PlanId
    loop_version: int = Field(ge=1, description="Version of the planning loop for which the plan was computed.")
    expected_plan_ids: dict[Name, PlanId | None] = Field(
        min_length=1,
        max_length=100,
        description="Target -> the plan that it has now; null: none.  Every target of the loop.",
    )


class LoopPlan(Frozen):
    """The plan of all targets of a planning loop."""

    plan_id: PlanId
    target_versions: dict[Name, int] = Field(description="Target -> its version with this plan.")
