"""The plan: units to hire, replicas to run, routing, proof and explanation."""

from collections.abc import Mapping
from datetime import date
from typing import Literal

from pydantic import AwareDatetime, Field

from fleet.documents import Frozen
from fleet.solvers import Solver, SolveStatus
from planner.engine_flags import EngineFlags, ReplicaSettings, ServingEngine
from planner.explain.alternatives import Alternative
from planner.explain.break_even import BreakEven
from planner.explain.ideal_bound import IdealBound
from planner.explain.iis import Conflict
from planner.explain.prices import DomainWatts, Prices
from planner.explain.runner_up import RunnerUp
from planner.objectives import Objective
from planner.options.expert_imbalance import ExpertSpread
from planner.rollout_planner import RolloutReport
from planner.schedule import Schedule
from planner.stock import StockUse
from planner.throughput import Throughput
from planner.time_limit import Phase
from planner.validation.scenarios import WorkloadValidation


class Allocation(Frozen):
    """Replicas of one option."""

    workload: str
    option: str
    gpu: str
    count: int = Field(ge=1)
    gpus_per_replica: int = Field(ge=1)
    clock: float | None = Field(
        default=None, gt=0, le=1, description="Share of the full clock; absent for a given option."
    )
    offer: str | None = Field(description="Id of the offer; absent for a given option.")
    busy: float = Field(ge=0, description="Mean utilisation, as a share of the replicas' highest rate.")
    power_w: float | None = Field(
        ge=0,
        description="Of all these replicas at full load, by the power curves, their share of the servers included; "
        "absent for a GPU that is not in the catalogue.",
    )
    settings: ReplicaSettings | None = Field(
        default=None, description="How each replica must run; absent for a given option."
    )
    engine_flags: Mapping[ServingEngine, EngineFlags] = Field(
        default_factory=dict, description="The settings as launch flags of each engine; none for a given option."
    )


class Hire(Frozen):
    """Whole units to hire: instances of an offer, or replicas of a given option."""

    name: str = Field(description="Id of the offer, or workload/option.")
    offer: str | None
    units: int = Field(ge=1)
    gpus_per_unit: int | None = Field(default=None, description="Absent if a unit is a replica.")
    price_usd_per_h: float = Field(ge=0, description="Of one unit.")
    cost_usd_per_h: float = Field(ge=0)


InputKind = Literal["sizes", "price", "gpu", "model", "performance", "profiles"]


class InputAge(Frozen):
    """An input of the plan and its age."""

    kind: InputKind
    name: str
    as_of: date | None
    age_days: int | None = Field(ge=0)
    source: str | None


Weights = Mapping[str, Mapping[str, Mapping[str, float]]]


class Plan(Frozen):
    """One plan.  Without a mix (`infeasible`, `time_limit`) there is no cost and no allocation."""

    status: SolveStatus
    cost_usd_per_h: float | None = Field(default=None, ge=0)
    bound_usd_per_h: float | None = Field(
        default=None, ge=0, description="Proven: no mix that meets the request costs less.  Absent if none exists."
    )
    gap: float | None = Field(
        default=None, ge=0, le=1, description="(cost - bound) / cost: the greatest distance from the optimum."
    )
    goal: Objective = Field(default="cost", validate_default=True)
    goal_value: float | None = Field(
        default=None, description="Of the objective: $/h, W, g/h or requests/s; absent without a mix."
    )
    goal_bound: float | None = Field(default=None, description="Proven: no better value exists.")
    cut: tuple[Phase, ...] = Field(default=(), description="The phases that the time limit of the request cut short.")
    verified: bool | None = Field(
        default=None,
        description="Whether every limit of every SLO held in the replay; absent: not replayed, or not every workload.",
    )
    moves: RolloutReport | None = Field(
        default=None, description="From the running replicas to the plan; absent without `current`."
    )
    timetable: Schedule | None = Field(default=None, description="The plan per period, if requested.")
    proofs: tuple[WorkloadValidation, ...] = Field(default=(), description="Results of the replay of each workload.")
    power_w: float | None = Field(
        default=0.0,
        ge=0,
        description="At full load, by the power curves; absent if a GPU in use is not in the catalogue.",
    )
    allocation: tuple[Allocation, ...] = ()
    hires: tuple[Hire, ...] = ()
    routing: Weights = Field(
        default_factory=dict,
        description="Workload -> bucket -> option -> weight.  Weights of a bucket sum to 1; a bucket that no allocated "
        "replica can serve has none.",
    )
    throughput: Mapping[str, Mapping[str, Throughput]] = Field(
        default_factory=dict, description="Workload -> allocated option -> the planned rates."
    )
    experts: Mapping[str, Mapping[str, ExpertSpread]] = Field(
        default_factory=dict,
        description="Workload -> allocated option that distributes experts -> its expert imbalance.",
    )
    prices: Prices = Field(default=Prices(), description="The binding limits and the gain of one step more.")
    power_domains: tuple[DomainWatts, ...] = Field(
        default=(), description="Planned power of each power domain, and the saving of one more kW."
    )
    alternatives: tuple[Alternative, ...] = ()
    runners_up: tuple[RunnerUp, ...] = Field(default=(), description="The next best mixes of other types.")
    break_evens: tuple[BreakEven, ...] = Field(
        default=(), description="The prices below which unused GPU types enter the plan."
    )
    conflicts: tuple[Conflict, ...] = Field(default=(), description="Requirements that cannot all hold.")
    perfect: IdealBound | None = Field(default=None, description="The least that any scheduler needs.")
    explanation: tuple[str, ...] = ()
    inputs: tuple[InputAge, ...] = ()
    stock: tuple[StockUse, ...] = Field(
        default=(), description="The stocks that filled in offers; a plan on a stale one is not applied."
    )
    solver: Solver
    solve_s: float = Field(ge=0, description="Time to solve the mix, without estimates, replay and explanation.")
    explain_s: float = Field(default=0.0, ge=0, description="Time for the explanation.")
    planned_at: AwareDatetime

    @property
    def stale_stock(self) -> StockUse | None:
        """The first stock that was too old when the plan was solved."""
        return next((use for use in self.stock if use.stale), None)
