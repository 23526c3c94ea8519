"""The choice of an option for a request, and of one of its replicas.

The option is drawn with the plan's weights for the request's bucket, as weighted routes of Envoy and the Gateway API
are.  One number per request, independent of the weights, decides: two plans that differ in one weight send all other
requests the same way.  Inside an option a load balancer chooses the replica.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError
from fleet.sizes.histogram import SizeBuckets
from planner.replay.kernel_layout import NONE_INDEX, Slots
from planner.replay.stream import Stream
from planner.request import bucket_name

Routing = Mapping[str, Mapping[str, float]]  # bucket -> option -> weight, as a plan has it per workload


class Balancing(StrEnum):
    """The load balancing among equal replicas.  Load is the number of requests sent and not yet finished."""

    ROUND_ROBIN = "round_robin"  # the next in turn
    MIN_REQUESTS = "least_requests"  # the least loaded of all, ties in turn: what queue scorers and proxies do
    POWER_OF_TWO = "power_of_two"  # the less loaded of two drawn at random (Mitzenmacher 2001; Envoy's MIN_REQUEST)


def options_of(
    stream: Stream, buckets: SizeBuckets, routing: Routing, options: Sequence[str], *, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """The position of each request's option; NONE_INDEX where its bucket has no weights."""
    weights = _weights(buckets, routing, options)
    rows = np.searchsorted(buckets.input_tokens, stream.input_tokens).clip(max=len(buckets.input_tokens) - 1)
    columns = np.searchsorted(buckets.output_tokens, stream.output_tokens).clip(max=len(buckets.output_tokens) - 1)
    cells = rows * len(buckets.output_tokens) + columns
    drawn = rng.random(stream.requests)
    cumulated = np.cumsum(weights, axis=1)
    chosen = np.full(stream.requests, NONE_INDEX, dtype=np.int64)
    for cell in np.unique(cells):
        here = np.flatnonzero(cells == cell)
        if (total := cumulated[cell, -1]) > 0:
            chosen[here] = np.searchsorted(cumulated[cell], drawn[here] * total, side="right").clip(
                max=int(np.flatnonzero(weights[cell])[-1])
            )
    return chosen


def candidates(balancing: Balancing, *, replicas: int, requests: int, rng: np.random.Generator) -> Slots:
    """The replicas that a router considers, in the form of `kernel.simulate`."""
    if balancing is Balancing.ROUND_ROBIN or replicas == 1:
        return np.zeros((0, 1), dtype=np.int64)
    if balancing is Balancing.MIN_REQUESTS or replicas == 2:
        return np.zeros((0, replicas), dtype=np.int64)
    one = rng.integers(replicas, size=requests)
    other = (one + 1 + rng.integers(replicas - 1, size=requests)) % replicas
    return np.ascontiguousarray(np.column_stack((one, other)), dtype=np.int64)


def _weights(buckets: SizeBuckets, routing: Routing, options: Sequence[str]) -> npt.NDArray[np.float64]:
    position = {option: column for column, option in enumerate(options)}
    names = {bucket_name(bucket): row for row, bucket in enumerate(buckets.buckets())}
    weights = np.zeros((len(names), len(options)))
    for bucket, shares in routing.items():
        if bucket not in names:
            raise RuleError([(("routing", bucket), f"is not a bucket, expected one of {', '.join(names)}")])
        for option, weight in shares.items():
            if option not in position:
                raise RuleError([(("routing", bucket, option), f"has no pool, expected one of {', '.join(options)}")])
            if not 0 <= weight < np.inf:
                raise RuleError([(("routing", bucket, option), f"{weight:g} is out of range, expected 0 or more")])
            weights[names[bucket], position[option]] = weight
    return weights
