"""The circuit breaker: many nodes suspected together have a common cause, so no further node is quarantined.

An open breaker never stops releases.
"""

from collections.abc import Iterable

from faults.quarantine.settings import QuarantineRules
from faults.quarantine.states import CircuitBreaker


def updated(
    breaker: CircuitBreaker, suspected: Iterable[str], *, fleet: int, now_s: float, rules: QuarantineRules
) -> CircuitBreaker:
    """Return the breaker after an evaluation with these nodes suspected with cause."""
    suspected_s = {**breaker.suspected_s, **dict.fromkeys(suspected, now_s)}
    last_s = max(suspected_s.values(), default=now_s)
    if breaker.open:
        # The nodes that tripped it stay listed until it closes: they are the reason of every refusal.
        if now_s - last_s >= rules.breaker_hold_s:
            return CircuitBreaker()
        return breaker._replace(suspected_s=suspected_s)
    recent_s = {node: at_s for node, at_s in suspected_s.items() if now_s - at_s <= rules.breaker_window_s}
    many = len(recent_s) >= rules.breaker_nodes and len(recent_s) > rules.breaker_share * fleet
    return CircuitBreaker(recent_s, now_s if many else None)
