"""Runs one action at a time, while this process is the leader and the fleet is not frozen, and records the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic

import structlog

from api.client import AsyncClient
from api.schemas.remediation import MAX_ACTIONS, CaseAction, CaseSpec
from deploy.common.errors import ActuationError, NotLeadingError
from deploy.common.leader_election import Leadership
from deploy.remediation.actuator import Action, Actuator, CaseContext, ProbeReading, RunHook, Snapshot
from deploy.remediation.metrics import RemediationMetrics

log = structlog.get_logger()

HOOK: Final = "hook-"  # prefix of a hook's action name
FAILED: Final = "failed"


class FrozenError(ActuationError):
    """The fleet is frozen."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    case: CaseSpec
    reading: ProbeReading | None = None
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class ActionRunner(Generic[Snapshot]):
    api: AsyncClient
    actuator: Actuator[Snapshot]
    leadership: Leadership
    metrics: RemediationMetrics
    now: Callable[[], datetime]

    async def run(self, action: Action, *, case: CaseSpec, context: CaseContext[Snapshot]) -> ActionResult:
        """Run an action.  A failed action is recorded too."""
        name = action.name
        if isinstance(action, RunHook) and any(each.action == name for each in case.actions):
            return ActionResult(case)
        if (await self.api.get_freeze()).document.frozen:
            raise FrozenError("the fleet is frozen")
        try:
            async with self.leadership.acting():
                outcome = await self.actuator.run(action, case=case, context=context)
        except NotLeadingError:
            raise
        except ActuationError as error:
            log.warning("action_failed", case=context.case_id, node=case.node, reason=str(error))
            self.metrics.count_action(name, ok=False)
            return ActionResult(with_action(case, FAILED, str(error), at=self.now()), failed=True)
        for record in outcome.records:
            self.metrics.count_action(record.name, ok=True)
            case = with_action(case, record.name, record.detail, at=self.now())
        return ActionResult(case, outcome.reading)


def with_action(case: CaseSpec, action: str, detail: str, *, at: datetime) -> CaseSpec:
    """Return the case with one more action; a repetition of the last one is not added."""
    printable = "".join(sign if sign.isprintable() else " " for sign in detail)[:1000]
    last = case.actions[-1] if case.actions else None
    if last is not None and (last.action, last.detail) == (action, printable):
        return case
    return with_actions(case, (CaseAction(at=at, action=action, detail=printable),))


def with_actions(case: CaseSpec, actions: Sequence[CaseAction]) -> CaseSpec:
    """Add the actions.  Of too many, the oldest are dropped, but no hooks: each hook runs once per case."""
    kept = [*case.actions, *(action for action in actions if action not in case.actions)]
    while len(kept) > MAX_ACTIONS:
        kept.remove(next(each for each in kept if not each.action.startswith(HOOK)))
    return case.model_copy(update={"actions": tuple(kept)})
