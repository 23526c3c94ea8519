"""Stores targets as a collection, and the freeze."""

from api.schemas.plans import PLANS
from api.schemas.targets import Freeze, Target, TargetSpec
from api.server.collections import AuditVerbs, Collection
from api.server.etags import Precondition
from api.server.problems import invalid
from api.server.service import Service
from api.server.versioned import AuditAction, DocumentKey, DocumentVersion, replace
from api.store import Transaction, canonical_json

FREEZE = DocumentKey(kind="freeze", name="default", shipped=canonical_json(Freeze().model_dump(mode="json")))


async def write_freeze(service: Service, freeze: Freeze, *, precondition: Precondition, actor: str) -> DocumentVersion:
    detail = freeze.model_dump(mode="json")
    audit_action = AuditAction(
        action="fleet.frozen" if freeze.frozen else "fleet.thawed", subject="freeze", detail=detail
    )
    _before, after = await replace(
        service,
        FREEZE,
        body=canonical_json(detail),
        precondition=precondition,
        actor=actor,
        audit_action=lambda _before, _after: audit_action,
    )
    return after


async def _plan_exists(service: Service, _name: str, spec: TargetSpec) -> None:
    if spec.plan_id is None:
        return
    async with service.store.reading() as tx:
        plan = await tx.results.get(kind=PLANS.name, result_id=spec.plan_id)
    if plan is None:
        raise invalid("plan_id", f"there is no plan {spec.plan_id!r}; allowed: the id of a stored plan, or null")


async def _status_goes_too(_service: Service, tx: Transaction, name: str, spec: TargetSpec | None) -> None:
    if spec is None:
        await tx.statuses.remove(name)


TARGETS = Collection(
    kind="targets",
    path="targets",
    label="target",
    verbs=AuditVerbs("target"),
    spec=TargetSpec,
    shown=Target,
    show=lambda found: Target(name=found.name, version=found.version, spec=found.spec),
    parse=TargetSpec.model_validate_json,
    validate=_plan_exists,
    check_references=_status_goes_too,
)
