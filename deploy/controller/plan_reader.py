"""From a stored plan to replicas per part of a target, or the reason why the plan must not be applied.

A part is scaled as a whole: a deployment, a worker group, a run.  Its key has the form of the plan's option
names, with the GPU type in place of the offer:

    H100-SXM                   any replica on this GPU type
    H100-SXM/x2                replicas of two GPUs
    H100-SXM/prefill           replicas that only prefill; `decode` likewise
    H100-SXM/tp2-fp8           replicas of this parallelism and precision; for options given outright, this option
    ...@0.7                    any of these, at this clock level only

If several keys fit, the most specific one takes the replica: option before role, role before size, size before type,
and each with its clock before the same without.  So a replica has one part or none, whatever the offers.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from api.client import AsyncClient, NotFoundError
from api.schemas.plans import PlanRecord
from api.schemas.targets import TargetSpec
from deploy.common.errors import PlanUnusableError
from planner.result import Allocation
from power.controls import FULL_CLOCK

ROLES = ("prefill", "decode")


def part_of(entry: Allocation, parts: Collection[str]) -> str | None:
    """Return the part that takes these replicas; None where the target has none for them."""
    return next((name for name in part_names(entry) if name in parts), None)


def part_names(entry: Allocation) -> list[str]:
    """Return every key that fits these replicas, the most specific first."""
    clocks = ["" if entry.clock is None else f"@{entry.clock:g}", ""]
    role = role_of(entry)
    scopes = [f"/{_option(entry)}", *([f"/{role}"] if role else []), f"/x{entry.gpus_per_replica}", ""]
    return list(dict.fromkeys(f"{entry.gpu}{scope}{clock}" for scope in scopes for clock in clocks))


def role_of(entry: Allocation) -> str | None:
    """Return the role of these replicas; None where each does both.  Options given outright have no role."""
    if entry.offer is None:
        return None
    return next((role for role in ROLES if _option(entry).endswith(f"-{role}")), None)


class PlanReader:
    """Reads plans from the API, each once, because a stored plan never changes."""

    def __init__(self, api: AsyncClient) -> None:
        self._api = api
        self._plans: dict[str, PlanRecord] = {}

    async def get(self, plan_id: str) -> PlanRecord:
        if (known := self._plans.get(plan_id)) is not None:
            return known
        try:
            plan = await self._api.get_plan(plan_id)
        except NotFoundError as error:
            raise PlanUnusableError(f"plan {plan_id!r} does not exist") from error
        self._plans[plan_id] = plan
        return plan

    def forget_all_but(self, plan_ids: Iterable[str | None]) -> None:
        wanted = set(plan_ids)
        self._plans = {plan_id: plan for plan_id, plan in self._plans.items() if plan_id in wanted}


def planned_replicas(record: PlanRecord, spec: TargetSpec) -> dict[str, int]:
    """Return the plan's replicas of each part of the target; 0 of those it does not use.

    Options of one part may differ in their offer.  They may not differ in role or in GPUs per replica, because all
    replicas of a deployment are alike.
    """
    planned: Counter[str] = Counter(dict.fromkeys(spec.application.parts, 0))
    sizes: dict[str, dict[int, str]] = {}
    roles: dict[str, dict[str, str]] = {}
    for entry, part in allocations_by_part(record, spec):
        planned[part] += entry.count
        sizes.setdefault(part, {})[entry.gpus_per_replica] = f"{entry.gpu}/x{entry.gpus_per_replica}"
        role = role_of(entry)
        roles.setdefault(part, {})[role or "both"] = f"{entry.gpu}/{role}" if role else part_names(entry)[0]
    for part, found in sorted(roles.items()):
        if len(found) > 1:
            raise PlanUnusableError(
                f"plan {record.id} wants {part} replicas of several roles ({', '.join(sorted(found))}); a deployment's "
                f"replicas are all alike (one for each role: {', '.join(found[role] for role in sorted(found))})"
            )
    for part, gpus in sorted(sizes.items()):
        if len(gpus) > 1:
            listed = " and ".join(map(str, sorted(gpus)))
            raise PlanUnusableError(
                f"plan {record.id} wants {part} replicas of {listed} GPUs; a deployment's replicas are all alike "
                f"(one for each size: {', '.join(gpus[size] for size in sorted(gpus))})"
            )
    return dict(planned)


def planned_clocks(record: PlanRecord, spec: TargetSpec) -> dict[str, float]:
    """Return the clock level of each part in use, at which all replicas of a deployment run.

    Without a clock in the plan it is the full clock, or the clock of an earlier plan would stay.
    """
    found: dict[str, set[float]] = {}
    for entry, part in allocations_by_part(record, spec):
        found.setdefault(part, set()).add(FULL_CLOCK if entry.clock is None else entry.clock)
    for part, clocks in sorted(found.items()):
        if len(clocks) > 1:
            listed = " and ".join(f"{clock:g}" for clock in sorted(clocks))
            raise PlanUnusableError(
                f"plan {record.id} wants {part} replicas at clocks {listed}; a deployment's replicas all run at one "
                f"(one for each: {', '.join(f'{part}@{clock:g}' for clock in sorted(clocks))})"
            )
    return {part: clock for part, (clock,) in found.items()}


def allocations_by_part(record: PlanRecord, spec: TargetSpec) -> list[tuple[Allocation, str]]:
    """Return the plan's allocations for the target's workload, each with its part."""
    _check_covers_workload(record, spec.workload)
    parts = spec.application.parts
    found: list[tuple[Allocation, str]] = []
    unassigned: set[str] = set()
    for entry in record.plan.allocation:
        if entry.workload != spec.workload:
            continue
        if (part := part_of(entry, parts)) is None:
            unassigned.add(_missing_key(entry, parts))
        else:
            found.append((entry, part))
    if unassigned:
        raise PlanUnusableError(
            f"plan {record.id} uses {', '.join(sorted(unassigned))}, for which the target names no deployment; "
            f"it has: {', '.join(sorted(parts))}"
        )
    return found


def check_fresh(record: PlanRecord, *, now: datetime, max_age_s: float) -> None:
    """Refuse a plan that is too old, or that was solved on a stale stock."""
    if (use := record.plan.stale_stock) is not None:
        raise PlanUnusableError(f"plan {record.id} is not applied: {use}; plan again")
    age = now - record.created_at
    if age > timedelta(seconds=max_age_s):
        days = timedelta(days=1)
        raise PlanUnusableError(
            f"plan {record.id} is {age / days:.1f} days old; allowed: at most {max_age_s / days.total_seconds():g} days"
        )


def _option(entry: Allocation) -> str:
    name = entry.option if entry.offer is None else entry.option.removeprefix(f"{entry.offer}/")
    return name if entry.clock is None else name.removesuffix(f"@{entry.clock:g}")


def _check_covers_workload(record: PlanRecord, workload: str) -> None:
    status = record.plan.status
    if not status.has_mix:
        because = f" ({record.plan.explanation[0]})" if record.plan.explanation else ""
        raise PlanUnusableError(f"plan {record.id} is {status.value} and has nothing to apply{because}")
    names = [known.name for known in record.request.workloads]
    if workload not in names:
        raise PlanUnusableError(f"plan {record.id} has no workload {workload!r}; it has: {', '.join(sorted(names))}")


def _missing_key(entry: Allocation, parts: Collection[str]) -> str:
    """Return the key that would take these replicas: the GPU type, unless the target has narrower keys on it."""
    narrowed = any(part.startswith((f"{entry.gpu}/", f"{entry.gpu}@")) for part in parts)
    return f"{part_names(entry)[0]} (x{entry.gpus_per_replica})" if narrowed else entry.gpu
