"""Whether an object may replace the target of the API that has its name.  Pure.

The object's status has the digest of the document that it wrote last.  A target with another content was written by
someone else and is left alone, until its version is named in the annotation `fleetwright.io/adopt-version`.

A specification without `plan_id` leaves the plan to others, such as a planning loop.
"""

import hashlib
from dataclasses import dataclass

from api.schemas.targets import Target, TargetSpec
from deploy.custom_resources.conditions import Condition, Kind, Status
from deploy.custom_resources.objects import ADOPT, FleetTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What to store; `over` is the target that it replaces."""

    spec: TargetSpec
    over: Target | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InSync:
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class NotOurs:
    condition: Condition


def digest_of(spec: TargetSpec, *, with_plan: bool) -> str:
    content = spec if with_plan else spec.model_copy(update={"plan_id": None})
    return hashlib.sha256(content.model_dump_json().encode()).hexdigest()


def resolve(wanted: FleetTarget, spec: TargetSpec, stored: Target | None) -> Write | InSync | NotOurs:
    with_plan = states_plan(wanted)
    wrote = wanted.status.digest
    if stored is None:
        if wrote is not None and wanted.status.observed_generation == wanted.metadata.generation:
            return _not_ours(
                "DeletedByAnotherWriter", "the target was deleted in the API; change this object to create it"
            )
        return Write(spec=spec, over=None)
    desired = spec if with_plan else spec.model_copy(update={"plan_id": stored.spec.plan_id})
    content = digest_of(stored.spec, with_plan=with_plan)
    if content == digest_of(desired, with_plan=with_plan):
        return InSync(target=stored)
    if content == wrote or wanted.metadata.annotations.get(ADOPT) == str(stored.version):
        return Write(spec=desired, over=stored)
    how = f"to replace it, annotate this object with {ADOPT}={stored.version}"
    if wrote is None:
        return _not_ours("NotOwned", f"the API has a target {stored.name!r} that this object did not write; {how}")
    return _not_ours("ChangedByAnotherWriter", f"version {stored.version} was written by another client; {how}")


def states_plan(wanted: FleetTarget) -> bool:
    return wanted.spec.target.get("plan_id") is not None


def may_delete(wanted: FleetTarget, stored: Target) -> bool:
    """Return whether the stored target is still what this object wrote."""
    return digest_of(stored.spec, with_plan=states_plan(wanted)) == wanted.status.digest


def _not_ours(reason: str, message: str) -> NotOurs:
    return NotOurs(condition=Condition(Kind.READY, Status.FALSE, reason, message))
