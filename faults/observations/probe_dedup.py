"""One reading of each train, whichever end tells of it: the one that received it, the one that sent it, or both.

The same train is the same pair and the same moment of sending.  Recorders round that to the microsecond, and a watcher
moves it by what it takes the clock for at the moment; trains of one pair are at least 0.1 s apart.
"""

from typing import Final

from faults.observations.kinds import Probe, ProbeReturned
from faults.observations.observation import Observation

SAME_S: Final = 0.04
MAX_OPEN: Final = 16  # trains of a pair that one end alone has told of: 8 s, and the ends are 3 s apart at most

Pair = tuple[int, int]
_Open = tuple[float, bool]  # when it was sent, and whether the sender has told of it


class ProbeDeduplicator:
    """Of all pairs of so many nodes; of more than `most` pairs the words of senders are left out."""

    def __init__(self, nodes: int, *, most: int) -> None:
        self._nodes, self._most = nodes, most
        self._open: dict[Pair, list[_Open]] = {}

    def __len__(self) -> int:
        """Pairs and trains that are held."""
        return len(self._open) + sum(map(len, self._open.values()))

    def reading(self, seen: Observation) -> Observation | None:
        """As the receiver would tell of it; None: it is none, or known from the other end."""
        values, by_sender = seen.values, isinstance(seen.values, ProbeReturned)
        if not isinstance(values, Probe | ProbeReturned) or seen.peer is None or seen.peer == seen.node:
            return None
        if not (0 <= seen.node < self._nodes and 0 <= seen.peer < self._nodes):
            return None
        source, target = (seen.node, seen.peer) if by_sender else (seen.peer, seen.node)
        opened = self._open.get((source, target))
        if opened is None:
            if len(self._open) >= self._most:
                return None if by_sender else seen
            opened = self._open[source, target] = []
        if _known(opened, values.sent_s, by_sender=by_sender):
            return None
        return Observation(seen.at_s, target, Probe(*values), peer=source) if by_sender else seen


def _known(opened: list[_Open], sent_s: float, *, by_sender: bool) -> bool:
    """Whether the other end has told of it; else it is kept until that one does."""
    others = [each for each in opened if each[1] is not by_sender and abs(each[0] - sent_s) <= SAME_S]
    if others:
        opened.remove(min(others, key=lambda each: abs(each[0] - sent_s)))
        return True
    opened.append((sent_s, by_sender))
    del opened[:-MAX_OPEN]
    return False
