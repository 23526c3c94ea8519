"""The life cycle of a node: one table for the policy, for operators and for the remediation controller.

    state        event                            next state
    serving      suspect                          suspect
    serving      propose, quarantine              proposed, quarantined
    suspect      clear                            serving
    suspect      propose, quarantine              proposed, quarantined
    proposed     clear                            serving
    proposed     quarantine                       quarantined
    quarantined  cooldown_over                    probing
    quarantined  release                          probation
    probing      probe_ended                      quarantined    failed, or another pass is required
    probing      release                          probation
    probation    probation_over                   serving
    probation    propose, quarantine              proposed, quarantined
    cordoned     release                          probation
    any other    cordon                           cordoned

Quarantined, probing and cordoned nodes are out of service: they take no work.  While a node is out of service, the
remediation controller moves its work in stages (`deploy.remediation.case_state_machine`).
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class NodeState(StrEnum):
    """State of a node.  A serving node is stored only if it has strikes."""

    SERVING = "serving"
    SUSPECT = "suspect"  # suspected of slowness that is not confirmed yet
    PROPOSED = "proposed"  # waits for an operator's approval
    QUARANTINED = "quarantined"
    PROBING = "probing"
    PROBATION = "probation"  # back in service; a new quarantine is a strike
    CORDONED = "cordoned"  # out of service until an operator releases it


OUT_OF_SERVICE: Final = frozenset((NodeState.QUARANTINED, NodeState.PROBING, NodeState.CORDONED))


class Event(StrEnum):
    """Cause of a transition."""

    SUSPECT = "suspect"
    CLEAR = "clear"
    PROPOSE = "propose"
    QUARANTINE = "quarantine"
    COOLDOWN_OVER = "cooldown-over"
    PROBE_ENDED = "probe-ended"
    RELEASE = "release"
    PROBATION_OVER = "probation-over"
    CORDON = "cordon"


_FREE: Final = (NodeState.SERVING, NodeState.SUSPECT, NodeState.PROBATION)
_TABLE: Final = MappingProxyType(
    {
        Event.SUSPECT: dict.fromkeys((NodeState.SERVING,), NodeState.SUSPECT),
        Event.CLEAR: dict.fromkeys((NodeState.SUSPECT, NodeState.PROPOSED), NodeState.SERVING),
        Event.PROPOSE: dict.fromkeys(_FREE, NodeState.PROPOSED),
        Event.QUARANTINE: dict.fromkeys((*_FREE, NodeState.PROPOSED), NodeState.QUARANTINED),
        Event.COOLDOWN_OVER: dict.fromkeys((NodeState.QUARANTINED,), NodeState.PROBING),
        Event.PROBE_ENDED: dict.fromkeys((NodeState.PROBING,), NodeState.QUARANTINED),
        Event.RELEASE: dict.fromkeys(OUT_OF_SERVICE, NodeState.PROBATION),
        Event.PROBATION_OVER: dict.fromkeys((NodeState.PROBATION,), NodeState.SERVING),
        Event.CORDON: dict.fromkeys(frozenset(NodeState) - {NodeState.CORDONED}, NodeState.CORDONED),
    }
)


def states_before(event: Event) -> frozenset[NodeState]:
    return frozenset(_TABLE[event])


def next_state(state: NodeState, event: Event) -> NodeState:
    """Return the next state; raise ValueError if the table has no such transition."""
    try:
        return _TABLE[event][state]
    except KeyError:
        raise ValueError(f"a node that is {state} has no event {event}") from None
