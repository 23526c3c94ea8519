"""The same trains as the ends of their pairs report them."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from faults.observations import Observation, Probe, ProbeReturned

WORD_S: Final = 0.2  # until a report is read


class End(StrEnum):
    """The ends whose reports arrive."""

    RECEIVER = "receiver"
    SENDER = "sender"
    BOTH = "both"
    NEITHER = "neither"


def told_by(end: End, observations: Iterable[Observation]) -> Iterator[Observation]:
    """The trains of receivers, reported by these ends; everything else unchanged."""
    for seen in observations:
        if not isinstance(seen.values, Probe) or seen.peer is None:
            yield seen
            continue
        if end in (End.RECEIVER, End.BOTH):
            yield seen
        if end in (End.SENDER, End.BOTH):
            yield Observation(seen.at_s + WORD_S, seen.peer, ProbeReturned(*seen.values), peer=seen.node)
