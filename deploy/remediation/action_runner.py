"""One act at a time: only while this process leads and nothing is frozen, and with what came of it on record."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from api.client import AsyncFleetwright
from api.schemas.remediation import MAX_ACTS, CaseAct, CaseSpec
from deploy.common.errors import ActuationError, NotLeadingError
from deploy.common.leader_election import Leadership
from deploy.remediation.case_state_machine import Act, CallOut, Drain, End, Probe
from deploy.remediation.cluster_interface import ProbeReading, Sight, World
from deploy.remediation.metrics import HealerMetrics

log = structlog.get_logger()

HOOK: Final = "hook-"  # and its name: an act that is taken once per case


class FrozenError(ActuationError):
    """The freeze is on."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The case with the act on record; of a probe, what it found."""

    case: CaseSpec
    reading: ProbeReading | None = None
    failed: bool = False


class Actor:
    """Takes acts."""

    def __init__(
        self,
        *,
        api: AsyncFleetwright,
        world: World,
        leadership: Leadership,
        metrics: HealerMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._api, self._world, self._leadership = api, world, leadership
        self._metrics, self._now = metrics, now

    async def take(self, act: Act, *, case: CaseSpec, case_id: str, sight: Sight) -> Taken:
        """Take it.  An act that fails is on record too."""
        kind = _kind(act)
        if isinstance(act, CallOut) and any(each.act == kind for each in case.acts):
            return Taken(case)
        if (await self._api.get_freeze()).document.frozen:
            raise FrozenError("the fleet is frozen")
        try:
            async with self._leadership.acting():
                detail, reading = await self._took(act, case=case, case_id=case_id, sight=sight)
        except NotLeadingError:
            raise
        except ActuationError as error:
            log.warning("act_failed", case=case_id, node=case.node, reason=str(error))
            self._metrics.acted(kind, ok=False)
            return Taken(recorded(case, "failed", str(error), at=self._now()), failed=True)
        if not detail:
            return Taken(case)  # there was nothing to call
        self._metrics.acted(kind, ok=True)
        return Taken(recorded(case, kind, detail, at=self._now()), reading)

    async def _took(self, act: Act, *, case: CaseSpec, case_id: str, sight: Sight) -> tuple[str, ProbeReading | None]:
        """In words; empty when the operator gave no such command."""
        world = self._world
        match act:
            case Drain(ray_ids):
                left_s = max(1.0, (case.deadline - self._now()).total_seconds()) if case.deadline else 1.0
                for ray_id in ray_ids:
                    await world.drain(ray_id, reason=f"fleetwright case {case_id}", deadline_s=left_s)
                return ", ".join(ray_ids), None
            case End(attempts, ray_ids):
                ended = {
                    run: await world.end_workers(run, attempt=attempt, ray_ids=ray_ids) for run, attempt in attempts
                }
                return ", ".join(f"{count} of {run}" for run, count in ended.items()), None
            case Probe(ray_id):
                reading = await world.probe(ray_id, good=_good(sight, case))
                return f"{'passed' if reading.passed else 'failed'}: {reading.detail}", reading
            case CallOut(hook):
                return await world.call_out(hook, node=case.node, case_id=case_id), None


def _kind(act: Act) -> str:
    """As it is called in a case and in metrics."""
    match act:
        case Drain():
            return "drain"
        case End():
            return "end-workers"
        case Probe():
            return "probe"
        case CallOut(hook):
            return f"{HOOK}{hook}"


def recorded(case: CaseSpec, act: str, detail: str, *, at: datetime) -> CaseSpec:
    """With one more act; the same one again, right after, is the same."""
    printable = "".join(sign if sign.isprintable() else " " for sign in detail)[:1000]
    last = case.acts[-1] if case.acts else None
    if last is not None and (last.act, last.detail) == (act, printable):
        return case
    return with_acts(case, (CaseAct(at=at, act=act, detail=printable),))


def with_acts(case: CaseSpec, acts: Sequence[CaseAct]) -> CaseSpec:
    """With these on record too.  Of too many the oldest go, but for hooks: what was called is not called again."""
    held = [*case.acts, *(act for act in acts if act not in case.acts)]
    while len(held) > MAX_ACTS:
        held.remove(next(each for each in held if not each.act.startswith(HOOK)))
    return case.model_copy(update={"acts": tuple(held)})


def one_by_one(acts: Iterable[Act]) -> Iterator[Act]:
    """Each such that it is taken or not, and never in part."""
    for act in acts:
        match act:
            case Drain(ray_ids):
                yield from (Drain((ray_id,)) for ray_id in ray_ids)
            case End(attempts, ray_ids):
                yield from (End((attempt,), ray_ids) for attempt in attempts)
            case _:
                yield act


def _good(sight: Sight, case: CaseSpec) -> list[str]:
    """Nodes that nothing speaks against, of the same pool first."""
    suspect = next((node for node in sight.called(case.node)), None)
    pool = suspect.pool if suspect is not None else None
    others = [node for node in sight.nodes if node.name != case.node and not node.draining and not node.on_probation]
    return [node.id for node in sorted(others, key=lambda node: (node.pool != pool, node.is_head, node.id))]
