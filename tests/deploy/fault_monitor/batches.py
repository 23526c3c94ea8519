"""The observations of a job in the batches of its recorders: socket polls as samples, all others unchanged."""

from collections.abc import Iterable, Iterator

import numpy as np

from deploy.telemetry.batch_codec import encode
from deploy.telemetry.diag import Sample
from faults.observations import Collective, Heartbeat, Observation, Socket, SocketPoll, on_clock_of


def batches(
    observations: Iterable[Observation], *, zero_s: float, sent_s: float, session: str = "s"
) -> Iterator[bytes]:
    """One body per node."""
    by_node: dict[int, list[Observation]] = {}
    for observation in observations:
        by_node.setdefault(observation.node, []).append(on_clock_of(observation, -zero_s))
    for node, own in sorted(by_node.items()):
        others = [observation for observation in own if not isinstance(observation.values, SocketPoll | Socket)]
        body, _held = encode(
            list(_samples(own)), others, session=session, number=0, held=None, node=node, sent_s=sent_s
        )
        yield body


def batches_of_ranks(
    observations: Iterable[Observation], *, zero_s: float, sent_s: float, session: str = "r"
) -> Iterator[bytes]:
    """The reports of ranks, sent directly instead of by the recorders: one body per rank."""
    by_rank: dict[int, list[Observation]] = {}
    for observation in observations:
        if observation.rank is not None and isinstance(observation.values, Heartbeat | Collective):
            by_rank.setdefault(observation.rank, []).append(on_clock_of(observation, -zero_s))
    for rank, own in sorted(by_rank.items()):
        node = own[0].node
        yield encode([], own, session=session, number=0, held=None, node=node, sent_s=sent_s, rank=rank)[0]


def _samples(own: list[Observation]) -> Iterator[Sample]:
    for poll in own:
        if isinstance(poll.values, SocketPoll):
            sockets = [one for one in own if one.at_s == poll.at_s and isinstance(one.values, Socket)]
            rows = {one.peer: one.values for one in sockets if one.peer is not None}
            peers = np.array(sorted(rows), np.int64)
            matrix = np.array([rows[peer] for peer in sorted(rows)], np.int64).reshape(len(rows), len(Socket._fields))
            yield Sample(poll.at_s, poll.node, peers, matrix)
