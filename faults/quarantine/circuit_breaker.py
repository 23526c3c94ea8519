"""When many nodes are accused together, something else is wrong: stop isolating.  Releases never stop."""

from collections.abc import Iterable

from faults.quarantine.settings import IsolationRules
from faults.quarantine.states import Breaker


def looked(breaker: Breaker, accused: Iterable[str], *, fleet: int, now_s: float, rules: IsolationRules) -> Breaker:
    """The breaker after a look at who is accused with cause now."""
    accused_s = {**breaker.accused_s, **dict.fromkeys(accused, now_s)}
    last_s = max(accused_s.values(), default=now_s)
    if breaker.open:
        # Who tripped it stays written down until it closes: that is the reason told for every refusal.
        return Breaker() if now_s - last_s >= rules.breaker_hold_s else breaker._replace(accused_s=accused_s)
    recent_s = {node: at_s for node, at_s in accused_s.items() if now_s - at_s <= rules.breaker_window_s}
    many = len(recent_s) >= rules.breaker_nodes and len(recent_s) > rules.breaker_share * fleet
    return Breaker(recent_s, now_s if many else None)
