"""Defines the schemas of power trees, budgets of their domains, power plans and simulations."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Annotated, Self

import numpy as np
from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from api.schemas.names import Name
from api.schemas.results import ResultHead, ResultType
from fleet.documents import Frozen, RuleError, Violation
from fleet.solvers import Solver, SolveStatus
from fleet.traces import MAX_TOKENS, Trace
from power.caps import CapPlan, Terms
from power.tree import PowerTree
from power.whatif.request import PolicyName, RowRequest
from power.whatif.response import RowResponse
from power.workload import Recorded, Sources

# The name of a power domain in the API: one path segment, one metric label.
DOMAIN_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,62}$"
DomainName = Annotated[str, StringConstraints(pattern=DOMAIN_PATTERN)]
MIN_TRACE_S = 1.0  # a burst has no rate for its repetition
MAX_BUDGET_VALIDITY = timedelta(days=7)  # a budget without expiry would outlive a dead planner

Instant = Annotated[float, Field(ge=0, le=1e9)]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
# Report only the first wrong figure of a million: reporting all would block the service.
Recording = (Field(fail_fast=True), Field(min_length=2))


class StoredTree(Frozen):
    """A stored power tree."""

    name: Name
    version: int = Field(ge=1)
    tree: PowerTree


class PowerBudget(Frozen):
    """The power limit of a domain until its expiry."""

    limit_w: float = Field(ge=0, le=1e9)
    expires_at: AwareDatetime


class StoredBudget(Frozen):
    """The newest budget of a domain, expired or not."""

    domain: DomainName
    version: int = Field(ge=1)
    set_at: datetime
    set_by: str
    budget: PowerBudget


class GivenTrace(Frozen):
    """Recorded requests; times count from the first one."""

    name: str = Field(default="trace", min_length=1, max_length=90)
    arrival_s: Annotated[tuple[Instant, ...], *Recording]
    input_tokens: Annotated[tuple[Tokens, ...], *Recording]
    output_tokens: Annotated[tuple[Tokens, ...], *Recording]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    @property
    def recorded(self) -> Recorded:
        arrival_s = np.array(self.arrival_s)
        trace = Trace(arrival_s - arrival_s[0], np.array(self.input_tokens), np.array(self.output_tokens))
        return Recorded(self.name, trace)

    def _violations(self) -> Iterator[Violation]:
        requests = len(self.arrival_s)
        for name in ("input_tokens", "output_tokens"):
            if (found := len(getattr(self, name))) != requests:
                yield (name,), f"must have one entry for each of the {requests} requests, got {found}"
        for position, (before, after) in enumerate(pairwise(self.arrival_s), start=1):
            if after < before:
                yield ("arrival_s", position), f"must be at least {before:g}, the previous time, got {after:g}"
                return
        if self.arrival_s[-1] - self.arrival_s[0] < MIN_TRACE_S:
            yield ("arrival_s",), f"must cover at least {MIN_TRACE_S:g} s"


class SimulationRequest(RowRequest):
    """A row to simulate, with the requests that it serves."""

    traces: Annotated[tuple[GivenTrace, ...], Field(max_length=8)] = Field(
        default=(), description="Repeated in place of the built-in mix; several share the row."
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [trace.name for trace in self.traces]
        twice = next((position for position, name in enumerate(names) if name in names[:position]), None)
        if twice is not None:
            raise RuleError([(("traces", twice, "name"), f"must be unique, got {names[twice]!r} again")])
        return self

    @classmethod
    def of(cls, request: RowRequest, sources: Sources) -> Self:
        """A local request with its traces, for a service."""
        if sources.shape is not None:
            raise RuleError([(("traces",), "a file of rates needs a local simulation")])
        traces = tuple(
            GivenTrace(
                name=name,
                arrival_s=tuple(trace.arrival_s.tolist()),
                input_tokens=tuple(trace.input_tokens.tolist()),
                output_tokens=tuple(trace.output_tokens.tolist()),
            )
            for name, trace in ((each.name, each.trace) for each in sources.traces)
        )
        return cls(**{name: getattr(request, name) for name in request.model_fields_set}, traces=traces)

    @property
    def sources(self) -> Sources:
        return Sources(tuple(trace.recorded for trace in self.traces))


class SimulationRecord(ResultHead):
    """One stored simulation."""

    request: SimulationRequest
    simulation: RowResponse


class SimulationSummary(ResultHead):
    """A simulation in a list."""

    servers: int
    budget_w: float
    policy: PolicyName
    days: float
    seed: int
    brakes: int
    peak_utilization: float
    slo_held: bool


class CapPlanRequest(Frozen):
    """A power tree to plan caps for, and the accepted risk."""

    tree: PowerTree | None = Field(default=None, description="The tree itself.")
    tree_name: Name | None = Field(default=None, description="Or the name of a stored tree.")
    terms: Terms = Terms()
    time_limit_s: float = Field(default=30.0, ge=0.01, le=600)
    solver: Solver = Solver.HIGHS

    @model_validator(mode="after")
    def _has_one_tree(self) -> Self:
        if (self.tree is None) == (self.tree_name is None):
            raise RuleError([(("tree",), "give either tree or tree_name")])
        return self


class CapPlanRecord(ResultHead):
    """One stored power plan."""

    request: CapPlanRequest
    plan: CapPlan


class CapPlanSummary(ResultHead):
    """A power plan in a list."""

    tree: str
    tree_version: int | None = Field(description="Version of the stored tree; null: the request contained the tree.")
    risk: float
    status: SolveStatus
    loss: float | None
    binding: str | None


POWER_PLANS = ResultType(
    name="power plan",
    path="power/plans",
    field="plan",
    request=CapPlanRequest,
    record=CapPlanRecord,
    summary=CapPlanSummary,
)
POWER_SIMULATIONS = ResultType(
    name="power simulation",
    path="power/simulations",
    field="simulation",
    request=SimulationRequest,
    record=SimulationRecord,
    summary=SimulationSummary,
)
