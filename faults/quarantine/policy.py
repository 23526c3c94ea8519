"""One step of the policy: the state machine of docs/faults/isolation.md.

The order is: what operators want, what probes found, what time alone changes, the breaker, then who is accused; so a
node that comes back in a step frees its place for another in the same step.
"""

from faults.quarantine.arbitration import Court
from faults.quarantine.circuit_breaker import looked
from faults.quarantine.inputs import Inputs, Wish
from faults.quarantine.outcome import Act, Outcome
from faults.quarantine.settings import IsolationRules, Mode
from faults.quarantine.states import OUT, Breaker, IsolationState, NodeRecord, Standing
from faults.quarantine.step_context import Desk


def step(state: IsolationState, inputs: Inputs, rules: IsolationRules) -> tuple[IsolationState, Outcome]:
    """What is remembered and what is wanted after one look."""
    desk = Desk(state=state, inputs=inputs, rules=rules)
    _forget(desk)
    for node in sorted(inputs.wishes):
        _wish(desk, node, inputs.wishes[node])
    for node in sorted(desk.nodes):
        _probed(desk, node)
        _time(desk, node)
    court = Court(desk)
    _breaker(desk, court.accused_with_cause())
    court.sit()
    return desk.state(), _outcome(desk)


def _forget(desk: Desk) -> None:
    """Dry runs of another mode, and nodes of which nothing is left to remember."""
    observing, now_s = desk.rules.mode is Mode.OBSERVE, desk.inputs.now_s
    for node, record in list(desk.nodes.items()):
        # A node that is out may be missing from the fleet for a while; one that never comes back is not ours any more.
        gone = node not in desk.inputs.members and (
            record.standing not in OUT or now_s - record.since_s >= desk.rules.strike_window_s
        )
        if gone or (record.dry_run and not observing):
            del desk.nodes[node]


def _wish(desk: Desk, node: str, wish: Wish) -> None:
    record = desk.record(node)
    if wish is Wish.RELEASE and record.standing in OUT:
        desk.release(node, "an operator released it", forgiven=record.standing is Standing.KEPT_OUT)
    elif wish is Wish.KEEP_OUT and record.standing is not Standing.KEPT_OUT:
        desk.keep_out(node, "an operator keeps it out")
    elif wish is Wish.DECLINE and record.standing is Standing.PROPOSED:
        desk.put(node, record._replace(standing=Standing.SERVING, declined=record.accusation))
        desk.decide(Act.CLEAR, node, "an operator would not let it go")


def _probed(desk: Desk, node: str) -> None:
    """A result counts once, and only where it was wanted."""
    record, result = desk.record(node), desk.inputs.probed.get(node)
    if result is None or record.standing is not Standing.PROBING or record.dry_run or result.at_s < record.since_s:
        return
    passed = result.passed
    if passed and record.passed + 1 >= desk.rules.probes:
        desk.release(node, f"{desk.rules.probes} probe(s) passed")
    elif passed:
        _probe_again(desk, node, record._replace(passed=record.passed + 1), wait_s=0.0)
    elif record.failed + 1 >= desk.rules.failed_probes:
        desk.keep_out(node, f"{record.failed + 1} probes failed")
    else:
        wait_s = min(desk.rules.longest_wait_s, desk.rules.probation_s * 2.0 ** (record.failed + 1))
        _probe_again(desk, node, record._replace(passed=0, failed=record.failed + 1), wait_s=wait_s)


def _probe_again(desk: Desk, node: str, record: NodeRecord, *, wait_s: float) -> None:
    now_s = desk.inputs.now_s
    desk.put(node, record._replace(standing=Standing.ISOLATED, since_s=now_s, probe_at_s=now_s + wait_s))


def _time(desk: Desk, node: str) -> None:
    """Probation served, or watched for long enough."""
    record, now_s = desk.record(node), desk.inputs.now_s
    if record.standing is Standing.ISOLATED and now_s >= record.probe_at_s and now_s > record.since_s:
        # A node that was never taken out cannot be probed.
        if record.dry_run:
            desk.release(node, "its probation would be over")
        else:
            desk.put(node, record._replace(standing=Standing.PROBING, since_s=now_s))
            desk.decide(Act.PROBE, node, "probation served")
    elif record.standing is Standing.WATCHED and now_s - record.since_s >= desk.rules.watch_s:
        desk.put(node, record._replace(standing=Standing.SERVING, since_s=now_s))


def _breaker(desk: Desk, accused: frozenset[str]) -> None:
    was = Breaker() if desk.inputs.close_breaker else desk.breaker
    now = looked(was, accused, fleet=len(desk.inputs.members), now_s=desk.inputs.now_s, rules=desk.rules)
    if now.open and not desk.breaker.open:
        names = ", ".join(sorted(now.accused_s)[:8])
        desk.decide(Act.OPEN_BREAKER, None, f"{len(now.accused_s)} nodes accused together: {names}")
    elif desk.breaker.open and not now.open:
        by = "an operator's word" if desk.inputs.close_breaker else "no accusation for long enough"
        desk.decide(Act.CLOSE_BREAKER, None, by)
    desk.breaker = now


def _outcome(desk: Desk) -> Outcome:
    real = {node: record for node, record in desk.nodes.items() if not record.dry_run}
    return Outcome(
        out=frozenset(node for node, record in real.items() if record.standing in OUT),
        probe=frozenset(node for node, record in real.items() if record.standing is Standing.PROBING),
        decisions=tuple(desk.decisions),
    )
