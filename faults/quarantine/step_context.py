"""One step in the making: the records as they are being changed, and what was decided so far."""

from types import MappingProxyType

from faults.quarantine.inputs import Inputs, Member
from faults.quarantine.outcome import Act, Decision
from faults.quarantine.settings import IsolationRules, Mode
from faults.quarantine.states import OUT, IsolationState, NodeRecord, Standing


class Desk:
    """Where the step is worked out.  It lives for one step."""

    def __init__(self, *, state: IsolationState, inputs: Inputs, rules: IsolationRules) -> None:
        self.inputs = inputs
        self.rules = rules
        self.nodes = dict(state.nodes)
        self.breaker = state.breaker
        after_s = inputs.now_s - rules.rate_window_s
        self.went_s = tuple(at_s for at_s in state.went_s if at_s > after_s)
        self.decisions: list[Decision] = []

    def state(self) -> IsolationState:
        """What is remembered; of a node that serves and has no story, nothing."""
        kept = {node: self._placed(node) for node in sorted(self.nodes) if _has_story(self.nodes[node])}
        return IsolationState(MappingProxyType(kept), self.breaker, self.went_s)

    def _placed(self, node: str) -> NodeRecord:
        record, member = self.nodes[node], self.inputs.members.get(node)
        if record.standing not in OUT:
            return record._replace(pool=None, domains=())
        return record if member is None else record._replace(pool=member.pool, domains=member.domains)

    def missing(self) -> list[Member]:
        """Nodes that are out and that the fleet does not show now: they are lacking all the same."""
        known = self.inputs.members
        records = [record for node, record in self.nodes.items() if record.standing in OUT and node not in known]
        return [Member(record.pool, record.domains, absent=True) for record in records if record.pool is not None]

    def out(self) -> frozenset[str]:
        """Nodes that take no work, or would not but for the dry run."""
        return frozenset(name for name, record in self.nodes.items() if record.standing in OUT)

    def record(self, node: str) -> NodeRecord:
        return self.nodes.get(node, NodeRecord())

    def put(self, node: str, record: NodeRecord) -> None:
        self.nodes[node] = record

    def decide(self, act: Act, node: str | None, reason: str, *, dry_run: bool | None = None) -> None:
        """Write an act down with what it rests on."""
        record = self.record(node) if node is not None else NodeRecord()
        dry = self.rules.mode is Mode.OBSERVE if dry_run is None else dry_run
        self.decisions.append(Decision(act, node, reason, record.accusation, dry))

    def isolate(self, node: str, reason: str) -> None:
        """Out it goes; at its last strike for good."""
        record, now_s = self.record(node), self.inputs.now_s
        strikes = tuple(at_s for at_s in record.isolated_s if now_s - at_s < self.rules.strike_window_s)
        went = record._replace(
            standing=Standing.ISOLATED,
            since_s=now_s,
            dry_run=self.rules.mode is Mode.OBSERVE,
            isolated_s=(*strikes, now_s),
            passed=0,
            failed=0,
            probe_at_s=now_s + self.rules.probation_s,
            refused=None,
        )
        self.put(node, went)
        self.went_s = (*self.went_s, now_s)
        self.decide(Act.ISOLATE, node, reason)
        if len(went.isolated_s) >= self.rules.strikes:
            self.keep_out(node, f"isolated {len(went.isolated_s)} times")

    def keep_out(self, node: str, reason: str) -> None:
        """Until a person releases it."""
        record = self.record(node)
        dry = record.dry_run if record.standing in (Standing.ISOLATED, Standing.PROBING) else self._observing()
        self.put(node, record._replace(standing=Standing.KEPT_OUT, since_s=self.inputs.now_s, dry_run=dry))
        self.decide(Act.KEEP_OUT, node, reason, dry_run=dry)

    def release(self, node: str, reason: str, *, forgiven: bool = False) -> None:
        """It serves again, and is watched."""
        record = self.record(node)
        self.decide(Act.RELEASE, node, reason, dry_run=record.dry_run)
        strikes = () if forgiven else record.isolated_s
        back = NodeRecord(Standing.WATCHED, self.inputs.now_s, isolated_s=strikes, dry_run=record.dry_run)
        self.put(node, back._replace(answered=record.accusation))

    def _observing(self) -> bool:
        return self.rules.mode is Mode.OBSERVE


def _has_story(record: NodeRecord) -> bool:
    return record != NodeRecord(since_s=record.since_s, accused_s=record.accused_s)
