"""The healer: every period the fleet is seen, the isolation policy is asked, and each case is brought one step nearer.

    sight ──> look at the fleet (policy, behind the API) ──> out, probe ──> cases ──> acts ──> cases written

Level-triggered.  A case is stored before the first act, and what an act came to is read from the world in the next
round, so the healer may be ended anywhere.  Of several only the one that holds the lease acts.  While the freeze is on
nothing is done; it is read before every act.

Cases do not wait for each other: one that fails is tried again in the next round, and one whose act takes long (a hook,
a probe) is passed over by the rounds until it is through.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from api.client import ApiError, AsyncFleetwright, PreconditionFailedError
from api.client.calls import Versioned
from api.schemas.pages import PAGE_LIMIT_MAX
from api.schemas.quarantine import IsolationView, LookOutcome, NodeView, ProbeEnd
from api.schemas.remediation import CaseAct, CasePhase, CaseSpec, HealingCase
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError, NotLeadingError
from deploy.common.leader_election import Leadership, Standing
from deploy.common.liveness import Pulse
from deploy.remediation.action_runner import Actor, one_by_one, with_acts
from deploy.remediation.case_state_machine import Move, Probe, Wanted, advance
from deploy.remediation.cluster_interface import Sight, World
from deploy.remediation.fleet_snapshot import look_of
from deploy.remediation.metrics import HealerMetrics
from faults.quarantine import Standing as NodeStanding
from faults.quarantine.inputs import SLOW

log = structlog.get_logger()

LEASE: Final = "healer"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealerSettings:
    """Bounds of the loop."""

    act: bool = False  # else it looks, asks the policy and writes down what it would do
    period_s: float = 1.0
    checkpoint_s: float = 60.0  # for ranks that still step, to checkpoint before their workers are ended
    round_timeout_s: float = 60.0
    patience_s: float = 2.0  # of a round, with the acts of its cases; what takes longer goes on beside the next rounds
    case_timeout_s: float = 600.0  # for all acts of one case in one round


class Healer:
    """Runs rounds over all cases."""

    def __init__(
        self,
        *,
        api: AsyncFleetwright,
        world: World,
        leadership: Leadership,
        metrics: HealerMetrics,
        settings: HealerSettings | None = None,
        pulse: Pulse | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._api, self._world, self._leadership = api, world, leadership
        self._settings = settings or HealerSettings()
        self._clock = clock or Clock()
        self._metrics, self._pulse = metrics, pulse or Pulse()
        metrics.led_by(lambda: leadership.holds)
        self._actor = Actor(api=api, world=world, leadership=leadership, metrics=metrics, now=self._clock.now)
        self._probed: dict[str, ProbeEnd] = {}
        self._one_probe = asyncio.Lock()  # two at once would slow each other down
        self._at_work: dict[str, asyncio.Task[bool]] = {}  # by case
        self._doing: dict[str, CaseSpec] = {}  # of those, as they will be written
        self._owed: dict[str, tuple[CaseAct, ...]] = {}  # by open case: acts taken that could not be written down yet
        self.doomed: frozenset[tuple[str, int]] = frozenset()  # attempts whose workers a case ends or has ended

    async def run(self) -> None:
        """A round every period, until cancelled; none before the lease could be asked for."""
        longest_s = self._settings.period_s + self._settings.round_timeout_s
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._leadership.run())
                while True:
                    self._pulse.beat(longest_s=longest_s)
                    await self._clock.sleep(self._settings.period_s)
                    await self.run_round()
        finally:
            for task in (at_work := list(self._at_work.values())):
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)

    async def run_round(self) -> bool:
        """One round; true when nothing stood in its way."""
        standing = self._leadership.standing
        if standing is Standing.FOLLOWS:
            return True  # no round: a follower's peace must not hide that the leader fails
        started_s = self._clock.steady_s()
        ok = standing is Standing.LEADS and await self._tried()
        duration_s = self._clock.steady_s() - started_s
        self._metrics.round_ended(ok=ok, duration_s=duration_s, at=self._clock.now())
        return ok

    async def _tried(self) -> bool:
        try:
            async with asyncio.timeout(self._settings.round_timeout_s):
                return await self._round()
        except (ApiError, ActuationError, TimeoutError) as error:
            log.warning("round_failed", reason=str(error) or type(error).__name__)
        except Exception:  # whatever is wrong with one round, the next one looks anew
            log.exception("round_broke")
        return False

    async def _round(self) -> bool:
        busy = frozenset(self._at_work)  # now: what is seen of them may be old by the time they are through
        sight = await self._world.look()
        if all(node.is_head for node in sight.nodes):
            return True  # nothing that could be isolated
        before = await self._api.get_isolation()
        cases = {each.id: each async for each in self._api.iter_healing_cases(limit=PAGE_LIMIT_MAX) if each.case.open}
        self._forget_all_but(cases)
        out = frozenset(before.out)
        outcome = await self._api.look_at_fleet(look_of(sight, out=out, probed=self._probed))
        self._tell(outcome)
        if outcome.frozen:
            return True
        after = await self._api.get_isolation() if outcome.decisions else before
        opened = await self._open_missing(cases, after, sight)
        begun = [each.case for each in cases.values() if each.case.phase is not CasePhase.WANTED]
        self.doomed = frozenset((run.run, run.attempt) for case in (*begun, *self._doing.values()) for run in case.runs)
        tasks = []
        for each in cases.values():
            if each.id not in busy:
                tasks.append(asyncio.create_task(self._carried_on(each, outcome, after, sight)))
                self._at_work[each.id] = tasks[-1]
        done, _late = await asyncio.wait(tasks, timeout=self._settings.patience_s) if tasks else (set(), set())
        return opened and all(task.result() for task in done)

    def _forget_all_but(self, cases: Mapping[str, HealingCase]) -> None:
        """What is held of cases that are closed matters no more."""
        nodes = {each.case.node for each in cases.values()}
        self._probed = {node: end for node, end in self._probed.items() if node in nodes}
        self._owed = {case_id: acts for case_id, acts in self._owed.items() if case_id in cases}

    async def _open_missing(self, cases: dict[str, HealingCase], view: IsolationView, sight: Sight) -> bool:
        """Whether each node that is out has a case now."""
        treated = {each.case.node for each in cases.values()}
        standing = {each.node: each for each in view.nodes}
        opened = True
        for node in view.out:
            if node in treated or node not in standing:
                continue
            try:
                case_id, case = await self._new_case(standing[node], sight)
                cases[case_id] = await self._opened(case_id, case)
            except ApiError as error:
                log.warning("case_not_opened", node=node, reason=str(error))
                opened = False
        return opened

    async def _opened(self, case_id: str, case: CaseSpec) -> HealingCase:
        try:
            return (await self._api.open_healing_case(case_id, case)).document
        except PreconditionFailedError:  # it was closed, and the node went for the same once more
            return await self._write(await self._api.get_healing_case(case_id), case)

    async def _carried_on(self, stored: HealingCase, outcome: LookOutcome, view: IsolationView, sight: Sight) -> bool:
        """Whether nothing stood in its way."""
        try:
            async with asyncio.timeout(self._settings.case_timeout_s):
                await self._carry_on(stored, outcome, view, sight)
        except (ApiError, ActuationError, TimeoutError) as error:
            log.warning("case_failed", id=stored.id, node=stored.case.node, reason=str(error) or type(error).__name__)
            return False
        except Exception:  # a defect met in one case must not end the work on the others
            log.exception("case_broke", id=stored.id, node=stored.case.node)
            return False
        finally:
            self._at_work.pop(stored.id, None)
            self._doing.pop(stored.id, None)
        return True

    async def _new_case(self, node: NodeView, sight: Sight) -> tuple[str, CaseSpec]:
        now = self._clock.now()
        patient = False
        if node.accusation is not None:
            patient = (await self._api.get_fault_verdict(node.accusation)).verdict.fault in SLOW
        case = CaseSpec(
            node=node.node,
            accusation=node.accusation,
            patient=patient,
            phase=CasePhase.WANTED,
            phase_since=now,
            opened_at=now,
            ray_nodes=tuple(sorted(each.id for each in sight.called(node.node))),
            deadline=now + timedelta(seconds=self._settings.checkpoint_s) if patient else now,
        )
        still = advance(case, wanted=Wanted(out=True), sight=sight, now=now).case
        word = hashlib.sha256(node.node.encode()).hexdigest()[:16]
        return node.accusation or f"kept-out-{word}", case.model_copy(update={"runs": still.runs})

    async def _carry_on(self, stored: HealingCase, outcome: LookOutcome, view: IsolationView, sight: Sight) -> None:
        now, node = self._clock.now(), stored.case.node
        wanted = Wanted(
            out=node in outcome.out,
            probed=node in outcome.probe,
            kept=any(each.node == node and each.standing is NodeStanding.KEPT_OUT for each in view.nodes),
        )
        before = with_acts(stored.case, self._owed.get(stored.id, ()))
        move = advance(before, wanted=wanted, sight=sight, now=now)
        if self._settings.act:
            stored, case = await self._done(stored, move, sight)
        else:
            case = _only_wanted(before, move, now)
        await self._written(stored, case)

    async def _done(self, stored: HealingCase, move: Move, sight: Sight) -> tuple[HealingCase, CaseSpec]:
        """As it is stored by then, and as it is to be: each act is on record before the next one is taken."""
        self.doomed |= frozenset((run.run, run.attempt) for run in move.case.runs)
        self._doing[stored.id] = case = move.case
        # A case is closed only once all went well: one that is closed is tried no more.
        still = {"phase": stored.case.phase, "phase_since": stored.case.phase_since} if not case.open else {}
        failed = False
        for act in one_by_one(move.acts):
            async with self._one_probe if isinstance(act, Probe) else nullcontext():
                taken = await self._actor.take(act, case=case, case_id=stored.id, sight=sight)
            failed = failed or taken.failed
            if taken.reading is not None:
                self._probed[case.node] = ProbeEnd(ended_at=self._clock.now(), passed=taken.reading.passed)
            if taken.case != case:
                case, self._owed[stored.id] = taken.case, taken.case.acts
                stored = await self._written(stored, case.model_copy(update=still))
        return stored, case.model_copy(update=still) if failed else case

    async def _written(self, stored: HealingCase, case: CaseSpec) -> HealingCase:
        if case != stored.case:
            stored = await self._write(await self._versioned(stored), case)
        self._owed.pop(stored.id, None)
        return stored

    async def _versioned(self, stored: HealingCase) -> Versioned[HealingCase]:
        found = await self._api.get_healing_case(stored.id)
        if found.document.version != stored.version:
            raise NotLeadingError(f"case {stored.id} was carried on by somebody else")
        return found

    async def _write(self, known: Versioned[HealingCase], case: CaseSpec) -> HealingCase:
        written = await self._api.carry_healing_case_on(known.document.id, case, if_match=known.etag)
        log.info("case", id=known.document.id, node=case.node, phase=case.phase.value, message=case.message)
        return written.document

    def _tell(self, outcome: LookOutcome) -> None:
        for each in outcome.decisions:
            log.info("decided", act=each.act.value, node=each.node, reason=each.reason, dry_run=each.dry_run)


def _only_wanted(case: CaseSpec, move: Move, now: datetime) -> CaseSpec:
    """What would be done, written down and not done."""
    if not move.case.open:
        return move.case
    would = "; ".join(map(_in_words, move.acts)) or move.case.message
    since = case.phase_since if case.phase is CasePhase.WANTED else now
    return move.case.model_copy(
        update={"phase": CasePhase.WANTED, "phase_since": since, "message": f"would: {would}"[:1000]}
    )


def _in_words(act: object) -> str:
    return f"{type(act).__name__.lower()} {', '.join(map(str, _values(act).values()))}"


def _values(act: object) -> Mapping[str, object]:
    return {name: getattr(act, name) for name in getattr(act, "__slots__", ())}
