"""A job's observations as its recorders send them: socket polls as samples, the rest unchanged, in whole batches."""

from collections.abc import Iterable, Iterator

import numpy as np

from deploy.telemetry.batch_codec import encode
from deploy.telemetry.diag import Sample
from faults.observations import Collective, Heartbeat, Observation, Socket, SocketPoll, on_clock_of


def batches(told: Iterable[Observation], *, zero_s: float, sent_s: float, session: str = "s") -> Iterator[bytes]:
    """One body per node."""
    by_node: dict[int, list[Observation]] = {}
    for seen in told:
        by_node.setdefault(seen.node, []).append(on_clock_of(seen, -zero_s))
    for node, own in sorted(by_node.items()):
        others = [seen for seen in own if not isinstance(seen.values, SocketPoll | Socket)]
        body, _held = encode(
            list(_samples(own)), others, session=session, number=0, held=None, node=node, sent_s=sent_s
        )
        yield body


def batches_of_ranks(
    told: Iterable[Observation], *, zero_s: float, sent_s: float, session: str = "r"
) -> Iterator[bytes]:
    """The reports of ranks, sent directly instead of by the recorders: one body per rank."""
    by_rank: dict[int, list[Observation]] = {}
    for seen in told:
        if seen.rank is not None and isinstance(seen.values, Heartbeat | Collective):
            by_rank.setdefault(seen.rank, []).append(on_clock_of(seen, -zero_s))
    for rank, own in sorted(by_rank.items()):
        node = own[0].node
        yield encode([], own, session=session, number=0, held=None, node=node, sent_s=sent_s, rank=rank)[0]


def _samples(own: list[Observation]) -> Iterator[Sample]:
    for look in own:
        if isinstance(look.values, SocketPoll):
            seen = [one for one in own if one.at_s == look.at_s and isinstance(one.values, Socket)]
            rows = {one.peer: one.values for one in seen if one.peer is not None}
            peers = np.array(sorted(rows), np.int64)
            matrix = np.array([rows[peer] for peer in sorted(rows)], np.int64).reshape(len(rows), len(Socket._fields))
            yield Sample(look.at_s, look.node, peers, matrix)
