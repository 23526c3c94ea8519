"""Who is accused, and whether it goes."""

from collections import Counter

from faults.quarantine.failure_domains import Groups
from faults.quarantine.guardrails import Case, Refusal, objection, unsound, void
from faults.quarantine.inputs import SLOW, Accusation, Wish
from faults.quarantine.outcome import Act
from faults.quarantine.settings import Mode
from faults.quarantine.states import OUT, NodeRecord, Standing
from faults.quarantine.step_context import Desk


class Court:
    """Hears the accusations of one step, the gravest first."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._promised: Counter[str] = Counter()
        self._groups = Groups(desk.inputs.members, desk.out(), desk.missing())
        # The gravest accusation against each node of the fleet that is not void, else the gravest.  What names a
        # node that is none of ours is the controller's to report: there is nothing here to take out.
        ours = [each for each in sorted(desk.inputs.accusations, key=_gravity) if each.node in desk.inputs.members]
        best: dict[str, Accusation] = {}
        for accusation in sorted(ours, key=lambda each: void(self._case(each)) is not None):
            best.setdefault(accusation.node, accusation)
        self._cases = dict(sorted(best.items(), key=lambda item: _gravity(item[1])))

    def accused_with_cause(self) -> frozenset[str]:
        """Nodes in service against which a sound verdict stands."""
        return frozenset(
            node
            for node, accusation in self._cases.items()
            if self._desk.record(node).standing not in OUT and unsound(self._case(accusation)) is None
        )

    def sit(self) -> None:
        """Hear everybody, then clear those whom nobody accuses any more."""
        for node, accusation in self._cases.items():
            if self._desk.record(node).standing not in OUT:
                self._hear(node, accusation)
        for node, record in list(self._desk.nodes.items()):
            if node not in self._cases and record.standing not in OUT and record.accusation is not None:
                self._clear(node, record)

    def _case(self, accusation: Accusation) -> Case:
        desk, node = self._desk, accusation.node
        member = desk.inputs.members[node]
        return Case(
            accusation,
            desk.record(node),
            member,
            desk.breaker,
            desk.went_s,
            self._groups,
            desk.inputs,
            desk.rules,
            self._promised[member.pool],
        )

    def _hear(self, node: str, accusation: Accusation) -> None:
        desk = self._desk
        record = desk.record(node)
        over = {record.answered, record.declined} - {accusation.id}
        if record.accusation is None or record.accusation in over:
            record = record._replace(accused_s=desk.inputs.now_s)
        desk.put(node, record._replace(accusation=accusation.id))
        found = objection(self._case(accusation))
        if found is not None:
            self._stays(node, *found)
        elif desk.rules.mode is Mode.RECOMMEND and not self._approved(node):
            self._propose(node, accusation)
        else:
            member = desk.inputs.members[node]
            self._promised[member.pool] += 1
            self._groups.went(member)
            desk.isolate(node, accusation.verdict.reason)

    def _approved(self, node: str) -> bool:
        return self._asked(node) and self._desk.record(node).standing is Standing.PROPOSED

    def _asked(self, node: str) -> bool:
        return self._desk.inputs.wishes.get(node) is Wish.APPROVE

    def _propose(self, node: str, accusation: Accusation) -> None:
        record = self._desk.record(node)
        if record.standing is not Standing.PROPOSED:
            since_s = self._desk.inputs.now_s
            self._desk.put(node, record._replace(standing=Standing.PROPOSED, since_s=since_s, refused=None))
            self._desk.decide(Act.PROPOSE, node, accusation.verdict.reason)

    def _stays(self, node: str, rule: Refusal, why: str) -> None:
        """It stays where it is; the rule is told when it is a new one."""
        desk, record = self._desk, self._desk.record(node)
        waiting = rule is Refusal.UNCONFIRMED
        if waiting and record.standing is Standing.SERVING:
            record = record._replace(standing=Standing.SUSPECT, since_s=desk.inputs.now_s)
        if record.refused != rule or self._asked(node):
            desk.decide(Act.SUSPECT if waiting else Act.REFUSE, node, f"{rule}: {why}")
        desk.put(node, record._replace(refused=rule))

    def _clear(self, node: str, record: NodeRecord) -> None:
        desk = self._desk
        if record.standing in (Standing.SUSPECT, Standing.PROPOSED):
            desk.decide(Act.CLEAR, node, "no longer accused")
            record = record._replace(standing=Standing.SERVING, since_s=desk.inputs.now_s)
        desk.put(node, record._replace(accusation=None, accused_s=0.0, refused=None, declined=None, answered=None))


def _gravity(accusation: Accusation) -> tuple[bool, float, str, str]:
    verdict = accusation.verdict
    return (verdict.fault in SLOW or not verdict.isolate, -verdict.confidence, accusation.node, accusation.id)
