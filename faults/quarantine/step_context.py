"""The working state of one step: the records as they change, and the decisions so far."""

from types import MappingProxyType

from faults.quarantine.inputs import Inputs, Member
from faults.quarantine.life_cycle import OUT_OF_SERVICE, Event, NodeState, next_state
from faults.quarantine.settings import PolicyMode, QuarantineRules
from faults.quarantine.states import Decision, DecisionKind, NodeRecord, QuarantineState


class StepContext:
    def __init__(self, *, state: QuarantineState, inputs: Inputs, rules: QuarantineRules) -> None:
        self.inputs = inputs
        self.rules = rules
        self.nodes = dict(state.nodes)
        self.breaker = state.breaker
        after_s = inputs.now_s - rules.rate_window_s
        self.quarantined_s = tuple(at_s for at_s in state.quarantined_s if at_s > after_s)
        self.decisions: list[Decision] = []

    def state(self) -> QuarantineState:
        """Return the state to store; a serving node without history is omitted."""
        kept = {node: self._with_groups(node) for node in sorted(self.nodes) if _has_history(self.nodes[node])}
        return QuarantineState(MappingProxyType(kept), self.breaker, self.quarantined_s)

    def _with_groups(self, node: str) -> NodeRecord:
        record, member = self.nodes[node], self.inputs.members.get(node)
        if record.state not in OUT_OF_SERVICE:
            return record._replace(pool=None, domains=())
        return record if member is None else record._replace(pool=member.pool, domains=member.domains)

    def missing(self) -> list[Member]:
        """Return the nodes that are out of service and that this evaluation omits: they reduce the budget too."""
        known = self.inputs.members
        records = [
            record for node, record in self.nodes.items() if record.state in OUT_OF_SERVICE and node not in known
        ]
        return [Member(record.pool, record.domains, absent=True) for record in records if record.pool is not None]

    def out_of_service(self) -> frozenset[str]:
        return frozenset(name for name, record in self.nodes.items() if record.state in OUT_OF_SERVICE)

    def record(self, node: str) -> NodeRecord:
        return self.nodes.get(node, NodeRecord())

    def put(self, node: str, record: NodeRecord) -> None:
        self.nodes[node] = record

    def move(self, node: str, event: Event, record: NodeRecord | None = None) -> NodeRecord:
        """Store the record (default: the current one) in the state after the event."""
        record = self.record(node) if record is None else record
        after = record._replace(state=next_state(record.state, event), since_s=self.inputs.now_s)
        self.put(node, after)
        return after

    def decide(self, kind: DecisionKind, node: str | None, reason: str, *, dry_run: bool | None = None) -> None:
        record = self.record(node) if node is not None else NodeRecord()
        dry = self._observing() if dry_run is None else dry_run
        self.decisions.append(Decision(kind, node, reason, record.diagnosis_id, dry))

    def quarantine(self, node: str, reason: str) -> None:
        """Take the node out of service; at its last strike, cordon it."""
        record, now_s = self.record(node), self.inputs.now_s
        strikes_s = tuple(at_s for at_s in record.strikes_s if now_s - at_s < self.rules.strike_window_s)
        after = record._replace(
            dry_run=self._observing(),
            strikes_s=(*strikes_s, now_s),
            probes_passed=0,
            probes_failed=0,
            probe_at_s=now_s + self.rules.cooldown_s,
            refused_by=None,
        )
        self.move(node, Event.QUARANTINE, after)
        self.quarantined_s = (*self.quarantined_s, now_s)
        self.decide(DecisionKind.QUARANTINE, node, reason)
        if len(after.strikes_s) >= self.rules.strikes:
            self.cordon(node, f"quarantined {len(after.strikes_s)} times")

    def cordon(self, node: str, reason: str) -> None:
        """Keep the node out of service until an operator releases it."""
        record = self.record(node)
        started = record.state in (NodeState.QUARANTINED, NodeState.PROBING)
        dry_run = record.dry_run if started else self._observing()
        self.move(node, Event.CORDON, record._replace(dry_run=dry_run))
        self.decide(DecisionKind.CORDON, node, reason, dry_run=dry_run)

    def release(self, node: str, reason: str, *, clear_strikes: bool = False) -> None:
        record = self.record(node)
        self.decide(DecisionKind.RELEASE, node, reason, dry_run=record.dry_run)
        self.put(
            node,
            NodeRecord(
                next_state(record.state, Event.RELEASE),
                self.inputs.now_s,
                strikes_s=() if clear_strikes else record.strikes_s,
                dry_run=record.dry_run,
                resolved=record.diagnosis_id,
            ),
        )

    def _observing(self) -> bool:
        return self.rules.mode is PolicyMode.OBSERVE


def _has_history(record: NodeRecord) -> bool:
    return record != NodeRecord(since_s=record.since_s, suspected_s=record.suspected_s)
