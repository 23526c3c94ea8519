"""The same trains as the ends of their pairs report them."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from faults.observations import Observation, Probe, ProbeReturned

REPORT_DELAY_S: Final = 0.2  # until a report is read


class End(StrEnum):
    """The ends whose reports arrive."""

    RECEIVER = "receiver"
    SENDER = "sender"
    BOTH = "both"
    NEITHER = "neither"


def reported_by(end: End, observations: Iterable[Observation]) -> Iterator[Observation]:
    """The trains of receivers, reported by these ends; everything else unchanged."""
    for observation in observations:
        if not isinstance(observation.values, Probe) or observation.peer is None:
            yield observation
            continue
        if end in (End.RECEIVER, End.BOTH):
            yield observation
        if end in (End.SENDER, End.BOTH):
            yield Observation(
                observation.at_s + REPORT_DELAY_S,
                observation.peer,
                ProbeReturned(*observation.values),
                peer=observation.node,
            )
