"""One step of the policy.

The order is: operator actions, probe results, elapsed times, the circuit breaker, suspicions.  A node that returns in a
step therefore frees its place in the budget for another node in the same step.
"""

from faults.quarantine.arbitration import QuarantineDecider
from faults.quarantine.circuit_breaker import updated
from faults.quarantine.inputs import Inputs, OperatorAction
from faults.quarantine.life_cycle import OUT_OF_SERVICE, Event, NodeState
from faults.quarantine.settings import PolicyMode, QuarantineRules
from faults.quarantine.states import CircuitBreaker, DecisionKind, NodeRecord, Outcome, QuarantineState
from faults.quarantine.step_context import StepContext


def step(state: QuarantineState, inputs: Inputs, rules: QuarantineRules) -> tuple[QuarantineState, Outcome]:
    """Return the state and the desired fleet after one evaluation."""
    context = StepContext(state=state, inputs=inputs, rules=rules)
    _discard(context)
    for node in sorted(inputs.operator_actions):
        _apply_action(context, node, inputs.operator_actions[node])
    for node in sorted(context.nodes):
        _apply_probe(context, node)
        _apply_time(context, node)
    decider = QuarantineDecider(context)
    _update_breaker(context, decider.suspected_with_cause())
    decider.decide()
    return context.state(), _outcome(context)


def _discard(context: StepContext) -> None:
    """Drop dry runs of another mode, and nodes that have left the fleet."""
    observing, now_s = context.rules.mode is PolicyMode.OBSERVE, context.inputs.now_s
    for node, record in list(context.nodes.items()):
        # A node that is out of service can be missing for a while, but not for longer than its strikes count.
        gone = node not in context.inputs.members and (
            record.state not in OUT_OF_SERVICE or now_s - record.since_s >= context.rules.strike_window_s
        )
        if gone or (record.dry_run and not observing):
            del context.nodes[node]


def _apply_action(context: StepContext, node: str, action: OperatorAction) -> None:
    record = context.record(node)
    if action is OperatorAction.RELEASE and record.state in OUT_OF_SERVICE:
        context.release(node, "an operator released it", clear_strikes=record.state is NodeState.CORDONED)
    elif action is OperatorAction.CORDON and record.state is not NodeState.CORDONED:
        context.cordon(node, "an operator cordoned it")
    elif action is OperatorAction.DECLINE and record.state is NodeState.PROPOSED:
        declined = record._replace(declined=record.diagnosis_id)
        context.put(node, context.move(node, Event.CLEAR, declined)._replace(since_s=record.since_s))
        context.decide(DecisionKind.CLEAR, node, "an operator declined it")


def _apply_probe(context: StepContext, node: str) -> None:
    """Apply the result once, and only if the policy requested the probe."""
    record, result = context.record(node), context.inputs.probe_results.get(node)
    if result is None or record.state is not NodeState.PROBING or record.dry_run or result.at_s < record.since_s:
        return
    rules, failed = context.rules, record.probes_failed + 1
    if result.passed and record.probes_passed + 1 >= rules.probes:
        context.release(node, f"{rules.probes} probe(s) passed")
    elif result.passed:
        _probe_again(context, node, record._replace(probes_passed=record.probes_passed + 1), wait_s=0.0)
    elif failed >= rules.failed_probes:
        context.cordon(node, f"{failed} probes failed")
    else:
        wait_s = min(rules.max_cooldown_s, rules.cooldown_s * 2.0**failed)
        _probe_again(context, node, record._replace(probes_passed=0, probes_failed=failed), wait_s=wait_s)


def _probe_again(context: StepContext, node: str, record: NodeRecord, *, wait_s: float) -> None:
    context.move(node, Event.PROBE_ENDED, record._replace(probe_at_s=context.inputs.now_s + wait_s))


def _apply_time(context: StepContext, node: str) -> None:
    record, now_s = context.record(node), context.inputs.now_s
    if record.state is NodeState.QUARANTINED and now_s >= record.probe_at_s and now_s > record.since_s:
        # A node that never left service cannot be probed.
        if record.dry_run:
            context.release(node, "its cooldown would be over")
        else:
            context.move(node, Event.COOLDOWN_OVER)
            context.decide(DecisionKind.PROBE, node, "cooldown over")
    elif record.state is NodeState.PROBATION and now_s - record.since_s >= context.rules.probation_s:
        context.move(node, Event.PROBATION_OVER)


def _update_breaker(context: StepContext, suspected: frozenset[str]) -> None:
    inputs = context.inputs
    before = CircuitBreaker() if inputs.reset_breaker else context.breaker
    after = updated(before, suspected, fleet=len(inputs.members), now_s=inputs.now_s, rules=context.rules)
    if after.open and not context.breaker.open:
        names = ", ".join(sorted(after.suspected_s)[:8])
        reason = f"{len(after.suspected_s)} nodes suspected together: {names}"
        context.decide(DecisionKind.OPEN_BREAKER, None, reason)
    elif context.breaker.open and not after.open:
        reason = "an operator reset it" if inputs.reset_breaker else "no suspicion for the hold time"
        context.decide(DecisionKind.CLOSE_BREAKER, None, reason)
    context.breaker = after


def _outcome(context: StepContext) -> Outcome:
    real = {node: record for node, record in context.nodes.items() if not record.dry_run}
    return Outcome(
        out_of_service=frozenset(node for node, record in real.items() if record.state in OUT_OF_SERVICE),
        probe=frozenset(node for node, record in real.items() if record.state is NodeState.PROBING),
        decisions=tuple(context.decisions),
    )
