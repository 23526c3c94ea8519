"""A told job as its recorders would send it: looks as samples, everything else as it is, in whole batches."""

from collections.abc import Iterable, Iterator

import numpy as np

from deploy.recorder.diag import Sample
from deploy.recorder.wire import encode
from faults.observations import Look, Observation, Socket


def batches(told: Iterable[Observation], *, zero_s: float, sent_s: float, session: str = "s") -> Iterator[bytes]:
    """One body a node."""
    by_node: dict[int, list[Observation]] = {}
    for seen in told:
        by_node.setdefault(seen.node, []).append(seen._replace(at_s=zero_s + seen.at_s))
    for node, own in sorted(by_node.items()):
        others = [seen for seen in own if not isinstance(seen.values, Look | Socket)]
        body, _held = encode(
            list(_samples(own)), others, session=session, number=0, held=None, node=node, sent_s=sent_s
        )
        yield body


def _samples(own: list[Observation]) -> Iterator[Sample]:
    for look in own:
        if isinstance(look.values, Look):
            seen = [one for one in own if one.at_s == look.at_s and isinstance(one.values, Socket)]
            rows = {one.peer: one.values for one in seen if one.peer is not None}
            peers = np.array(sorted(rows), np.int64)
            matrix = np.array([rows[peer] for peer in sorted(rows)], np.int64).reshape(len(rows), len(Socket._fields))
            yield Sample(look.at_s, look.node, peers, matrix)
