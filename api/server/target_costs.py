"""Exports what the replicas of a target cost, at the prices of its plan.

A replica of a hired offer costs the share of the offer's GPUs that it uses.  Several allocations on one GPU type and of
one size count with their mean price.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from api.schemas.plans import PLANS
from api.store import Transaction
from fleet.documents import read_stored
from planner.result import Allocation, Hire, Plan

MAX_PLANS = 4096
_PRICES: dict[str, "Prices"] = {}  # by plan; a stored plan never changes


@dataclass(frozen=True, slots=True)
class ReplicaPrice:
    workload: str
    gpu: str
    gpus_per_replica: int
    count: int
    usd_per_h: float


Prices = Sequence[ReplicaPrice]


def replica_prices(plan: Plan) -> Prices:
    """Return the price of one replica of each allocation."""
    hires = {hire.name: hire for hire in plan.hires}
    found = []
    for entry in plan.allocation:
        hire = hires.get(entry.offer or f"{entry.workload}/{entry.option}")
        if hire is not None:
            price = _usd_per_h(entry, hire)
            found.append(ReplicaPrice(entry.workload, entry.gpu, entry.gpus_per_replica, entry.count, price))
    return found


def cost_usd_per_h(prices: Prices, *, workload: str, replicas: Mapping[str, int]) -> float | None:
    """Return the cost of these replicas by part; None where the plan has no price for a part."""
    total = 0.0
    for part, count in replicas.items():
        if count == 0:
            continue
        fitting = [price for price in prices if price.workload == workload and _fits(price, part)]
        if not fitting:
            return None
        planned = sum(price.count for price in fitting)
        total += count * sum(price.usd_per_h * price.count for price in fitting) / planned
    return total


async def prices_of(tx: Transaction, plan_ids: Iterable[str | None]) -> Mapping[str, Prices]:
    """Return the prices of these plans, as far as they are stored."""
    wanted = {plan_id for plan_id in plan_ids if plan_id is not None}
    for plan_id in wanted - _PRICES.keys():
        stored = await tx.results.get(kind=PLANS.name, result_id=plan_id)
        if stored is not None:
            if len(_PRICES) >= MAX_PLANS:
                _PRICES.clear()
            _PRICES[plan_id] = replica_prices(read_stored(Plan, stored.result))
    return {plan_id: _PRICES[plan_id] for plan_id in wanted if plan_id in _PRICES}


@dataclass(frozen=True, slots=True)
class TargetReplicas:
    """The replicas of a target by part, and the prices of its plan."""

    target: str
    workload: str
    prices: Prices
    planned: Mapping[str, int]
    applied: Mapping[str, int]


def cost_metrics(targets: Iterable[TargetReplicas]) -> Iterable[Metric]:
    cost = GaugeMetricFamily(
        "fleetwright_target_cost_usd_per_hour",
        "Cost of the replicas of a target at the prices of its plan, by source: planned or applied.",
        labels=["target", "workload", "source"],
    )
    for each in targets:
        for source, replicas in (("planned", each.planned), ("applied", each.applied)):
            usd_per_h = cost_usd_per_h(each.prices, workload=each.workload, replicas=replicas)
            if replicas and usd_per_h is not None:
                cost.add_metric([each.target, each.workload, source], usd_per_h)
    yield cost


def _usd_per_h(entry: Allocation, hire: Hire) -> float:
    if hire.gpus_per_unit is None:
        return hire.price_usd_per_h
    return hire.price_usd_per_h * entry.gpus_per_replica / hire.gpus_per_unit


def _fits(price: ReplicaPrice, part: str) -> bool:
    """A part is named by GPU type, then perhaps by size (`/x2`), role or option, then perhaps by clock (`@0.7`)."""
    gpu, _, scope = part.partition("@")[0].partition("/")
    size = scope[1:] if scope[:1] == "x" and scope[1:].isdigit() else None
    return price.gpu == gpu and (size is None or price.gpus_per_replica == int(size))
