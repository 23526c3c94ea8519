"""Deduplicates the readings of a probe train, which its receiver, its sender or both may report.

A train is identified by its pair and its send time.  Recorders round the time to the microsecond, and a monitor moves
it by its current clock estimate; trains of one pair are at least 0.1 s apart.
"""

from typing import Final

from faults.observations import Observation, Probe, ProbeReturned

SAME_S: Final = 0.04
MAX_OPEN: Final = 16  # trains of a pair that only one end has reported: 8 s, and the ends are 3 s apart at most

Pair = tuple[int, int]
_Open = tuple[float, bool]  # when it was sent, and whether the sender has reported it


class ProbeDeduplicator:
    """Deduplication of probes for all pairs of nodes; beyond `max_pairs` pairs senders' reports are dropped."""

    def __init__(self, nodes: int, *, max_pairs: int) -> None:
        self._nodes, self._max_pairs = nodes, max_pairs
        self._open: dict[Pair, list[_Open]] = {}

    def __len__(self) -> int:
        return len(self._open) + sum(map(len, self._open.values()))

    def reading(self, observation: Observation) -> Observation | None:
        """Return the probe in the receiver's form; None for another kind, or a train known from the other end."""
        values, by_sender = observation.values, isinstance(observation.values, ProbeReturned)
        if (
            not isinstance(values, Probe | ProbeReturned)
            or observation.peer is None
            or observation.peer == observation.node
        ):
            return None
        if not (0 <= observation.node < self._nodes and 0 <= observation.peer < self._nodes):
            return None
        source, target = (observation.node, observation.peer) if by_sender else (observation.peer, observation.node)
        opened = self._open.get((source, target))
        if opened is None:
            if len(self._open) >= self._max_pairs:
                return None if by_sender else observation
            opened = self._open[source, target] = []
        if _known(opened, values.sent_s, by_sender=by_sender):
            return None
        return Observation(observation.at_s, target, Probe(*values), peer=source) if by_sender else observation


def _known(opened: list[_Open], sent_s: float, *, by_sender: bool) -> bool:
    """Return whether the other end has reported the train; otherwise store it until then."""
    others = [each for each in opened if each[1] is not by_sender and abs(each[0] - sent_s) <= SAME_S]
    if others:
        opened.remove(min(others, key=lambda each: abs(each[0] - sent_s)))
        return True
    opened.append((sent_s, by_sender))
    del opened[:-MAX_OPEN]
    return False
