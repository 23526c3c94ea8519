"""Findings of one evaluation: merges those of probes and of sockets.

Probes come first: an edge that they find slow is slow, whatever else loads the host.  A socket finding that probes
contradict is dropped, because sockets also wait for the job, the host and each other.  A link that its own past
supports stays, because a probe may take another path than the job's bytes.  Log likelihoods of both kinds add up, for
each hypothesis.  Against a NIC with more than one supporting probe sockets count at most `MAX_SOCKET_NATS`: alone they
tend to take a Tx for its busiest link, since short messages hardly show it.  Where trains prefer a link to the NIC at
its end, sockets count at most `MAX_NATS_OVER_LINK` more for that NIC.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from faults.diagnosis import Direction
from faults.fabric import Floats
from faults.slow.probe_likelihood import MAX_NATS, Probed, View
from faults.slow.sparse_fit import Entity, count_disjoint_pairs

MAX_AT_START: Final = 2  # nodes; if more are slow from the start, the job is the cause
CONTRADICTED_NATS: Final = -3.5  # a likelihood ratio of 1 to 33: two trains as usual
MAX_SOCKET_NATS: Final = 2.0  # nats
MAX_NATS_OVER_LINK: Final = 8.0  # the most that sockets add for a NIC over its link, where trains prefer that link
NIC_WAYS: Final = (Direction.TX, Direction.RX, Direction.BOTH)
Place = tuple[int, int | None, Direction]


@dataclass(frozen=True, slots=True)
class Slow:
    entity: Entity
    saved: float  # share of the window's time
    own: bool  # against its own history; otherwise against its peers
    log_likelihoods: Mapping[Entity, float] = field(default_factory=dict)  # of it and of its alternatives
    probed: bool = False  # found by probes

    @property
    def key(self) -> Hashable:
        """Return the key of persistence: a NIC in any direction, or a link."""
        return self.entity.place


def joined(
    found: Sequence[Slow],
    views: Sequence[View],
    *,
    false_per_window: float,
    of_sockets: Callable[[], Mapping[Direction, Floats]],
    make_finding: Callable[[Entity, bool], Slow],
) -> list[Slow]:
    """Return all findings.

    `of_sockets` gives the sockets' gain of each hypothesis, `make_finding` their finding for an entity (by its own past
    or not).
    """
    if not found and not any(view.suspicious for view in views):
        return []
    probed, beside = [view.probed() for view in views], of_sockets()
    reported = [make_finding(entity, one.own) for one in probed for entity in _findings(one, false_per_window, beside)]
    likely = [{_place(entity): (entity, nats) for entity, nats in one.likely().items()} for one in probed]
    kept = [slow for slow in found if not _is_contradicted(slow, likely)]
    return [replace(slow, log_likelihoods=_log_likelihoods(slow, probed, likely)) for slow in (*reported, *kept)]


def _findings(probed: Probed, false_per_window: float, of_sockets: Mapping[Direction, Floats]) -> tuple[Entity, ...]:
    """Return the findings against the peers, at most as many as can be a fault."""
    entities = probed.entities(false_per_window, of_sockets)
    if probed.own or not entities:
        return entities
    slow = np.any([entity.where(probed.nodes) for entity in entities], axis=0)
    return entities if count_disjoint_pairs(slow) <= MAX_AT_START else ()


def _is_contradicted(slow: Slow, likely: Sequence[Mapping[Place, tuple[Entity, float]]]) -> bool:
    if slow.own and slow.entity.peer is not None:
        return False
    reported = [one[_place(slow.entity)][1] for one in likely if _place(slow.entity) in one]
    return bool(reported) and min(reported) < CONTRADICTED_NATS


def _log_likelihoods(
    slow: Slow, probed: Sequence[Probed], likely: Sequence[Mapping[Place, tuple[Entity, float]]]
) -> dict[Entity, float]:
    """Return the log likelihoods of sockets and probes, of all hypotheses that share an end with the entity."""
    of_kind = next((each for one, each in zip(probed, likely, strict=True) if one.own is slow.own), {})
    supported = {place for place, (_, nats) in of_kind.items() if place[1] is None and nats > MAX_NATS}
    least = max(slow.log_likelihoods.values(), default=0.0) - MAX_SOCKET_NATS
    most = _nats_over_links(slow, of_kind)
    sums = dict(slow.log_likelihoods)
    for entity, nats in slow.log_likelihoods.items():
        if entity.peer is None and entity.node in most:
            sums[entity] = min(nats, most[entity.node])
        elif _place(entity) in supported:
            sums[entity] = max(nats, least)
    known = {_place(entity): entity for entity in sums}
    for place, (entity, nats) in of_kind.items():
        if place in known:
            sums[known[place]] += nats
        elif slow.entity.ends & entity.ends:
            sums[entity] = nats + (max(0.0, least) if place in supported else 0.0)
    return sums


def _nats_over_links(slow: Slow, of_kind: Mapping[Place, tuple[Entity, float]]) -> dict[int, float]:
    """Return, per node at an end of a link that trains prefer to its NIC, the most that sockets add for that NIC."""
    of_sockets = {_place(entity): nats for entity, nats in slow.log_likelihoods.items()}
    most: dict[int, float] = {}
    for place, (entity, nats) in of_kind.items():
        for end in entity.ends if entity.peer is not None and nats > MAX_NATS else ():
            if all(nats > of_kind[end, None, way][1] for way in NIC_WAYS if (end, None, way) in of_kind):
                most[end] = max(most.get(end, 0.0), of_sockets.get(place, 0.0) + MAX_NATS_OVER_LINK)
    return most


def _place(entity: Entity) -> Place:
    return entity.node, entity.peer, entity.way
