"""Targets and the freeze as versioned documents."""

from api.schemas.targets import Freeze, Target, TargetSpec
from api.server.etags import Precondition
from api.server.service import Service
from api.server.versioned import Deed, Edition, Slot, replace
from api.store import Transaction, canonical_json

TARGET_KIND = "targets"
FREEZE = Slot(kind="freeze", name="default", shipped=canonical_json(Freeze().model_dump(mode="json")))


def target_slot(name: str) -> Slot:
    """Where a target lives."""
    return Slot(kind=TARGET_KIND, name=name)


def read_target(name: str, found: Edition) -> Target:
    """A stored target."""
    spec = TargetSpec.model_validate_json(found.body or "")
    return Target(name=name, version=found.version, spec=spec)


async def write_freeze(service: Service, freeze: Freeze, *, precondition: Precondition, actor: str) -> Edition:
    """Freeze or thaw."""
    detail = freeze.model_dump(mode="json")
    deed = Deed(action="fleet.frozen" if freeze.frozen else "fleet.thawed", subject="freeze", detail=detail)
    _before, after = await replace(
        service,
        FREEZE,
        body=canonical_json(detail),
        precondition=precondition,
        actor=actor,
        deed=lambda _before, _after: deed,
    )
    return after


async def write_target(
    service: Service, name: str, spec: TargetSpec, *, precondition: Precondition, actor: str
) -> tuple[Edition, bool]:
    """Create or replace a target; its new version, and whether it was created."""
    detail = spec.model_dump(mode="json")

    def deed(before: Edition, _after: Edition) -> Deed:
        verb = "created" if before.body is None else "replaced"
        return Deed(action=f"target.{verb}", subject=f"targets/{name}", detail=detail)

    before, after = await replace(
        service,
        target_slot(name),
        body=canonical_json(detail),
        precondition=precondition,
        actor=actor,
        deed=deed,
    )
    return after, before.body is None


async def delete_target(service: Service, name: str, *, precondition: Precondition, actor: str) -> None:
    """Forget a target and its status; its versions stay."""

    async def forget_status(tx: Transaction) -> None:
        await tx.statuses.remove(name)

    await replace(
        service,
        target_slot(name),
        body=None,
        precondition=precondition,
        actor=actor,
        deed=lambda _before, _after: Deed(action="target.deleted", subject=f"targets/{name}", detail={}),
        check=forget_status,
    )
