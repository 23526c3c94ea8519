"""Compares two plans: cost, power, mix, measured latencies against their limits, routing, and the requests."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, Self

from pydantic import Field

from fleet.documents import Frozen
from fleet.slo import Metric, Statistic
from fleet.solvers import SolveStatus
from planner.replay.slo_check import LimitCheck
from planner.request import PlanRequest, bucket_names
from planner.result import Allocation, Hire, Plan

MAX_FIELDS: Final = 200  # of the requests; more do not help a reader
MAX_VALUE_CHARACTERS: Final = 120
NEGLIGIBLE_WEIGHT: Final = 1e-6  # of a bucket: the solvers' rounding


class Change(Frozen):
    """A figure of both plans."""

    before: float | None
    after: float | None
    difference: float | None = Field(description="Absent where one of the plans has no such figure.")

    @classmethod
    def of(cls, before: float | None, after: float | None) -> Self:
        difference = after - before if before is not None and after is not None else None
        return cls(before=before, after=after, difference=difference)


class OptionChange(Frozen):
    """Replicas of one option."""

    workload: str
    option: str
    gpu: str
    before: int = Field(ge=0)
    after: int = Field(ge=0)


class GpuChange(Frozen):
    """GPUs of one type, and the cost of what is hired for them."""

    gpu: str
    gpus: Change
    cost_usd_per_h: Change


class LatencyChange(Frozen):
    """One limit of a workload's SLO, as the replays of the plans measured it."""

    workload: str
    metric: Metric
    statistic: Statistic
    limit_ms: Change
    measured_ms: Change
    holds_before: bool | None = Field(description="Absent where the plan was not replayed.")
    holds_after: bool | None


class RouteChange(Frozen):
    """The share of a workload's requests that one route serves."""

    workload: str
    route: str
    before: float
    after: float


class RoutingChange(Frozen):
    """The share of a bucket that one route serves."""

    workload: str
    bucket: str
    route: str
    before: float
    after: float


class FieldChange(Frozen):
    """A field of the requests, as JSON; absent where a request does not have it."""

    path: str
    before: str | None
    after: str | None


class PlanComparison(Frozen):
    """The changes from one plan to another."""

    status_before: SolveStatus
    status_after: SolveStatus
    verified_before: bool | None
    verified_after: bool | None
    cost_usd_per_h: Change
    power_w: Change
    replicas: Change
    gpus: Change
    nearest_limit: Change = Field(description="The highest measured latency, as a share of its limit.")
    mix: tuple[OptionChange, ...]
    gpus_by_type: tuple[GpuChange, ...]
    latencies: tuple[LatencyChange, ...] = Field(description="All limits that either replay has measured.")
    routes: tuple[RouteChange, ...] = Field(description="The routes of either plan, by their share of the requests.")
    routing: tuple[RoutingChange, ...] = Field(description="The shares of buckets that differ.")
    request: tuple[FieldChange, ...] = Field(description=f"The fields that differ, at most {MAX_FIELDS}.")


def compare_plans(
    before: Plan, after: Plan, *, request_before: PlanRequest, request_after: PlanRequest
) -> PlanComparison:
    """Return what changes from a plan to another one."""
    return PlanComparison(
        status_before=before.status,
        status_after=after.status,
        verified_before=before.verified,
        verified_after=after.verified,
        cost_usd_per_h=Change.of(before.cost_usd_per_h, after.cost_usd_per_h),
        power_w=Change.of(_power_w(before), _power_w(after)),
        replicas=Change.of(_replicas(before), _replicas(after)),
        gpus=Change.of(sum(_gpus(before).values()), sum(_gpus(after).values())),
        nearest_limit=Change.of(_nearest_limit(before), _nearest_limit(after)),
        mix=tuple(_mix(before, after)),
        gpus_by_type=tuple(_gpu_types(before, after)),
        latencies=tuple(_latencies(before, after)),
        routes=tuple(_routes(_shares(before, request_before), _shares(after, request_after))),
        routing=tuple(_routing(before, after)),
        request=tuple(islice(_fields(request_before, request_after), MAX_FIELDS)),
    )


def _power_w(plan: Plan) -> float | None:
    return plan.power_w if plan.status.has_mix else None


def _replicas(plan: Plan) -> int:
    return sum(entry.count for entry in plan.allocation)


def _gpus(plan: Plan) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in plan.allocation:
        found[entry.gpu] = found.get(entry.gpu, 0) + entry.count * entry.gpus_per_replica
    return found


def _nearest_limit(plan: Plan) -> float | None:
    limits = [limit for proof in plan.proofs for limit in proof.slo_check.limits]
    shares = [limit.measured_ms / limit.limit_ms for limit in limits if limit.measured_ms is not None]
    return max(shares) if shares and len(shares) == len(limits) else None


def _mix(before: Plan, after: Plan) -> Iterator[OptionChange]:
    left, right = ({(entry.workload, entry.option): entry for entry in plan.allocation} for plan in (before, after))
    for key in left | right:
        entry = left.get(key) or right[key]
        yield OptionChange(
            workload=entry.workload,
            option=entry.option,
            gpu=entry.gpu,
            before=left[key].count if key in left else 0,
            after=right[key].count if key in right else 0,
        )


def _gpu_types(before: Plan, after: Plan) -> Iterator[GpuChange]:
    counts, costs = (_gpus(before), _gpus(after)), (_costs(before), _costs(after))
    for gpu in counts[0] | counts[1] | costs[0] | costs[1]:
        yield GpuChange(
            gpu=gpu,
            gpus=Change.of(*(count.get(gpu, 0) for count in counts)),
            cost_usd_per_h=Change.of(*(cost.get(gpu, 0.0) for cost in costs)),
        )


def _costs(plan: Plan) -> dict[str, float]:
    """GPU type -> cost of the hires behind its replicas."""
    found: dict[str, float] = {}
    for hire in plan.hires:
        gpu = next((entry.gpu for entry in plan.allocation if _is_hired_as(entry, hire)), hire.name)
        found[gpu] = found.get(gpu, 0.0) + hire.cost_usd_per_h
    return found


def _is_hired_as(entry: Allocation, hire: Hire) -> bool:
    """A given option is hired under the name of its workload and its own."""
    return entry.offer == hire.offer if hire.offer is not None else f"{entry.workload}/{entry.option}" == hire.name


def _latencies(before: Plan, after: Plan) -> Iterator[LatencyChange]:
    left, right = _limits(before), _limits(after)
    for key in left | right:
        workload, metric, statistic = key
        one, other = left.get(key), right.get(key)
        yield LatencyChange(
            workload=workload,
            metric=metric,
            statistic=statistic,
            limit_ms=Change.of(*(each.limit_ms if each is not None else None for each in (one, other))),
            measured_ms=Change.of(*(each.measured_ms if each is not None else None for each in (one, other))),
            holds_before=one.holds if one is not None else None,
            holds_after=other.holds if other is not None else None,
        )


def _limits(plan: Plan) -> dict[tuple[str, Metric, Statistic], LimitCheck]:
    return {
        (proof.workload, limit.metric, limit.statistic): limit
        for proof in plan.proofs
        for limit in proof.slo_check.limits
    }


def _routes(before: Mapping[tuple[str, str], float], after: Mapping[tuple[str, str], float]) -> Iterator[RouteChange]:
    for workload, route in dict.fromkeys([*before, *after]):
        shares = [side.get((workload, route), 0.0) for side in (before, after)]
        yield RouteChange(workload=workload, route=route, before=shares[0], after=shares[1])


def _shares(plan: Plan, request: PlanRequest) -> dict[tuple[str, str], float]:
    """(Workload, route) -> its share of the planned requests."""
    found: dict[tuple[str, str], float] = {}
    for workload in request.workloads:
        buckets = plan.routing.get(workload.name, {})
        rates = dict(zip(bucket_names(workload), workload.bucket_rates_rps(), strict=True))
        for bucket, routes in buckets.items():
            for route, weight in routes.items():
                if workload.planned_rps > 0:
                    key = workload.name, route
                    found[key] = found.get(key, 0.0) + weight * rates[bucket] / workload.planned_rps
    return found


def _routing(before: Plan, after: Plan) -> Iterator[RoutingChange]:
    left, right = _weights(before), _weights(after)
    for key in left | right:
        one, other = left.get(key, 0.0), right.get(key, 0.0)
        if abs(other - one) > NEGLIGIBLE_WEIGHT:
            workload, bucket, route = key
            yield RoutingChange(workload=workload, bucket=bucket, route=route, before=one, after=other)


def _weights(plan: Plan) -> dict[tuple[str, str, str], float]:
    return {
        (workload, bucket, route): weight
        for workload, buckets in plan.routing.items()
        for bucket, routes in buckets.items()
        for route, weight in routes.items()
    }


def _fields(before: PlanRequest, after: PlanRequest) -> Iterator[FieldChange]:
    left, right = (dict(_flat(request.model_dump(mode="json"))) for request in (before, after))
    for path in left | right:
        one, other = left.get(path), right.get(path)
        if one != other:
            yield FieldChange(path=path, before=_json(one), after=_json(other))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields with a value, with their paths: `workloads[0].slo.tpot_ms.mean`."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{position}]")
    elif value is not None:
        yield path, value


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)[:MAX_VALUE_CHARACTERS]
