"""A planning request: workloads, offers and rules.

An option's throughput table may be given and is then used as it is.  Otherwise the options of a workload are enumerated
from the offers, the GPU catalogue and the model's architecture, which requires a model and an SLO.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Annotated, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from fleet.demand import DemandSeries
from fleet.documents import Frozen, Path, RuleError
from fleet.offers import Market, Offer
from fleet.sizes.histogram import Bucket, SizeBuckets
from fleet.sizes.sources import Sizes, SizeSource, resolve
from fleet.slo import Slo
from fleet.solvers import Solver
from planner.expert_loads import RecordedLoads
from planner.performance.config import KvPrecision, WeightPrecision
from planner.policy import Carbon, ExplainLevel, Horizon, Policy, PowerDomainLimit, Quota, Replay, Running
from planner.profiles import Profiles
from planner.throughput import Rate, Table

MAX_SHARES = 100_000  # options x buckets of all workloads; a larger request is a mistake or an attack
# A rate that needs more replicas for its bucket means "cannot serve"; solvers cannot scale it.
MAX_REPLICAS_PER_BUCKET = 1e5

Level = Annotated[float, Field(ge=0.3, le=1)]
Spare = Annotated[int, Field(ge=0, le=64)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^\S(.*\S)?$")]


class GivenOption(Frozen):
    """A replica option with known throughput, from a measurement or for an experiment."""

    name: Name
    gpu: Name  # need not be in the GPU catalogue
    gpus: int = Field(default=1, ge=1, le=1024, description="GPUs of one replica.")
    price_usd_per_h: float = Field(ge=0, le=1e6, description="Of one replica with all its GPUs.")
    max_rps: Table = Field(
        description="Highest rate one replica holds inside the SLO, row per input edge, column per output edge; "
        "0 where it cannot serve the bucket."
    )
    available: int | None = Field(default=None, ge=0, description="Replicas available; absent: no limit.")


class Workload(Frozen):
    """Requests for one model under one SLO."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: Name
    model: Name | None = Field(default=None, description="Of the model catalogue; needed unless options are given.")
    rate_rps: Rate | None = Field(default=None, description="Mean arrival rate; this, demand, or a trace with times.")
    demand: DemandSeries | None = Field(default=None, description="A series of rates; the plan is for its peak.")
    size_source: SizeSource = Field(
        alias="buckets", description="Request sizes: a histogram, a named preset, or a trace."
    )
    slo: Slo | None = Field(default=None, description="Needed unless options are given.")
    options: tuple[GivenOption, ...] | None = Field(default=None, min_length=1, max_length=1000)
    min_replicas: int = Field(default=0, ge=0, le=10_000)
    precisions: tuple[WeightPrecision, ...] | None = Field(
        default=None, min_length=1, description="Of the weights; absent: 16 bit, because fewer bits change the outputs."
    )
    kv_precisions: tuple[KvPrecision, ...] = Field(default=("bf16",), min_length=1, description="Of the KV cache.")
    split: bool = Field(default=False, description="Also consider prefill and decode on separate replicas.")
    expert_imbalance: float | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Load of the busiest GPU over the mean, for distributed experts; absent: that of a placement by "
        "expert_loads, or 1.25 without them.",
    )
    expert_loads: RecordedLoads | None = Field(
        default=None,
        description="Tokens of each expert; options that distribute experts are planned with a placement by them.",
    )
    redundant_experts: tuple[Spare, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="Copies of experts that each GPU may hold beyond its even share, as choices; absent: 0, and "
        "with expert_loads also 1.",
    )
    arrival_cv: float = Field(
        default=1.0, ge=0.05, le=20, description="Coefficient of variation of the times between requests; Poisson: 1."
    )

    @cached_property
    def sizes(self) -> Sizes:
        return resolve(self.size_source)

    @property
    def buckets(self) -> SizeBuckets:
        return self.sizes.buckets

    @property
    def series(self) -> DemandSeries | None:
        """The demand over time if it is known: as given, or from the trace."""
        return self.demand if self.demand is not None or self.rate_rps is not None else self.sizes.demand

    @property
    def planned_rps(self) -> float:
        return self.series.peak_rps if self.series is not None else self.rate_rps or 0.0

    def bucket_rates_rps(self) -> tuple[float, ...]:
        """The planned rate of every bucket, row by row."""
        return tuple(self.planned_rps * bucket.share for bucket in self.buckets.buckets())

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        RuleError.raise_for(_workload_violations(self))
        return self


class RateScale(Frozen):
    """A factor on the rates of a workload's options on one GPU type, from observed latencies."""

    workload: Name
    gpu: Name
    factor: float = Field(ge=0.1, le=10, description="1: as predicted or measured.")


class PlanRequest(Frozen):
    """One request to the planner."""

    workloads: tuple[Workload, ...] = Field(min_length=1, max_length=1000)
    offers: tuple[Offer, ...] | None = Field(
        default=None, min_length=1, max_length=10_000, description="Absent: the stored price sheet."
    )
    markets: tuple[Market, ...] = Field(
        default=(Market.ON_DEMAND, Market.RESERVED, Market.OWNED),
        min_length=1,
        description="Markets of usable offers.  Spot must be listed: no headroom is planned for its interruptions.",
    )
    profiles: Profiles | None = Field(default=None, description="Measured rates, used before predictions.")
    rate_scales: tuple[RateScale, ...] = Field(
        default=(),
        max_length=1000,
        description="Corrections of rates by observed latencies; a planning loop sets them.",
    )
    policy: Policy = Policy()
    power_domains: tuple[PowerDomainLimit, ...] = Field(default=(), max_length=1000)
    power_levels: tuple[Level, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="Relative clocks of replicas; absent: full, and lower ones under a power limit.",
    )
    quotas: tuple[Quota, ...] = Field(default=(), max_length=1000)
    replay: Replay | None = Field(
        default=None,
        description="How to validate the plan; absent: an hour of a trace is replayed, drawn sizes are not.",
    )
    horizon: Horizon | None = Field(default=None, description="Also plan the demand per period.")
    current: tuple[Running, ...] | None = Field(default=None, max_length=10_000, description="Replicas that run now.")
    carbon: Carbon | None = Field(default=None, description="Required for the goal carbon.")
    utilisation: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of a replica's highest rate that the plan may use, also with a replay; "
        "absent: 1, or the highest that the replay allows.",
    )
    time_limit_s: float = Field(
        default=10.0,
        ge=0.01,
        le=600,
        description="For the whole plan: mix, replay, schedule and explanation; `cut` of the plan names what it ended.",
    )
    relative_gap: float = Field(default=0.0, ge=0, le=0.5, description="Accepted distance from the optimum.")
    solver: Solver = Solver.HIGHS

    def explained(self, level: ExplainLevel) -> Self:
        return self.model_copy(update={"policy": self.policy.model_copy(update={"explain": level})})

    @property
    def proof(self) -> Replay | None:
        """How the plan is validated, if at all."""
        traced = any(workload.sizes.trace is not None for workload in self.workloads)
        return self.replay if self.replay is not None or not traced else Replay()

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        RuleError.raise_for(_request_violations(self))
        return self


def bucket_name(bucket: Bucket) -> str:
    """The bucket's name in results and errors: input x output tokens of its edge."""
    return f"{bucket.edge[0]}x{bucket.edge[1]}"


def bucket_names(workload: Workload) -> tuple[str, ...]:
    return tuple(map(bucket_name, workload.buckets.buckets()))


def _request_violations(request: PlanRequest) -> Iterator[tuple[Path, str]]:
    goal = request.policy.goal
    if goal.needs is not None and getattr(request, goal.needs) is None:
        yield (goal.needs,), f"is required for the goal {goal}: {goal.needs_text}"
    if request.horizon is not None and all(workload.series is None for workload in request.workloads):
        yield ("horizon",), "needs a workload with demand, or with a trace: constant rates have no periods"
    if request.horizon is not None and (request.policy.survive or request.policy.erring_buckets):
        yield ("horizon",), "excludes policy.survive and policy.erring_buckets: leave one or the other out"
    yield from _scale_violations(request)
    yield from _used_twice((domain.name for domain in request.power_domains), at=("power_domains",), field="name")
    yield from _used_twice((quota.name for quota in request.quotas), at=("quotas",), field="name")
    yield from _current_violations(request)
    yield from _used_twice((workload.name for workload in request.workloads), at=("workloads",), field="name")
    yield from _used_twice((offer.id for offer in request.offers or ()), at=("offers",), field="id")
    shares = sum(len(workload.options or ()) * workload.sizes.cells for workload in request.workloads)
    if shares > MAX_SHARES:
        yield ("workloads",), f"options times buckets come to {shares:,}, expected at most {MAX_SHARES:,}"


def _current_violations(request: PlanRequest) -> Iterator[tuple[Path, str]]:
    known = {workload.name for workload in request.workloads}
    for position, running in enumerate(request.current or ()):
        if running.workload not in known:
            names = ", ".join(sorted(known)[:5])
            yield (
                ("current", position, "workload"),
                f"no workload has the name {running.workload!r}, expected one of {names}",
            )


def _scale_violations(request: PlanRequest) -> Iterator[tuple[Path, str]]:
    known = {workload.name for workload in request.workloads}
    scaled: set[tuple[str, str]] = set()
    for position, scale in enumerate(request.rate_scales):
        if scale.workload not in known:
            yield ("rate_scales", position, "workload"), f"expected one of {', '.join(sorted(known)[:5])}"
        elif (scale.workload, scale.gpu) in scaled:
            yield ("rate_scales", position), f"{scale.workload} on {scale.gpu} already has a factor"
        scaled.add((scale.workload, scale.gpu))


def _workload_violations(workload: Workload) -> Iterator[tuple[Path, str]]:
    if workload.rate_rps is not None and workload.demand is not None:
        yield (), "give either rate_rps or demand, and not both"
    try:
        source = workload.sizes
    except RuleError as error:
        yield from ((("buckets", *path), message) for path, message in error.violations)
        return
    if workload.rate_rps is None and workload.demand is None and source.demand is None:
        yield (), "give rate_rps or demand: the sizes alone have no rate"
    yield from _expert_violations(workload)
    if workload.options is None:
        for field in ("model", "slo"):
            if getattr(workload, field) is None:
                yield (field,), "is required without options"
        return
    yield from _used_twice((option.name for option in workload.options), at=("options",), field="name")
    misshapen = list(_shape_violations(workload.options, source))
    yield from misshapen
    if not misshapen:
        yield from _rate_violations(workload.options, workload)


def _expert_violations(workload: Workload) -> Iterator[tuple[Path, str]]:
    if workload.expert_loads is not None and workload.expert_imbalance is not None:
        yield ("expert_imbalance",), "give either this or expert_loads, which determine it"
    if workload.redundant_experts is not None and workload.expert_loads is None:
        yield ("redundant_experts",), "needs expert_loads, which determine the value of copies"


def _shape_violations(options: Iterable[GivenOption], sizes: Sizes) -> Iterator[tuple[Path, str]]:
    rows, columns = len(sizes.input_tokens), len(sizes.output_tokens)
    for position, option in enumerate(options):
        at = ("options", position, "max_rps")
        if len(option.max_rps) != rows:
            yield at, f"has {len(option.max_rps)} rows, expected {rows}: one per edge of input_tokens"
        for row, rates in enumerate(option.max_rps):
            if len(rates) != columns:
                yield (*at, row), f"has {len(rates)} columns, expected {columns}: one per edge of output_tokens"


def _rate_violations(options: Iterable[GivenOption], workload: Workload) -> Iterator[tuple[Path, str]]:
    for bucket in workload.buckets.buckets():
        rate_rps = workload.planned_rps * bucket.share
        served = False
        for position, option in enumerate(options):
            max_rps = option.max_rps[bucket.row][bucket.column]
            served |= max_rps > 0
            if 0 < max_rps < (min_rps := rate_rps / MAX_REPLICAS_PER_BUCKET):
                at = ("options", position, "max_rps", bucket.row, bucket.column)
                yield at, f"{max_rps:g} is too small for {rate_rps:g} rps, expected 0 or at least {min_rps:g}"
        if rate_rps > 0 and not served:
            cell = ("buckets", "share", bucket.row, bucket.column)
            yield cell, f"no option can serve bucket {bucket_name(bucket)}: max_rps is 0 there for all of them"


def _used_twice(names: Iterable[str], *, at: Path, field: str) -> Iterator[tuple[Path, str]]:
    first: dict[str, int] = {}
    for position, name in enumerate(names):
        if (earlier := first.setdefault(name, position)) != position:
            yield (*at, position, field), f"must be unique, but {name!r} is already number {earlier}"
