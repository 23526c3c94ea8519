"""What clusters on GPUs cost from layer to layer, wherever they lie (docs/placement/exact.md, section 7)."""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from placement.arrays import Floats, Ints

Held = npt.NDArray[np.bool_]  # [layers, experts, GPUs or clusters]: where a copy lies

GIGA = 1e9


@dataclass(frozen=True, eq=False)
class Exchange:
    """What the assignment decides on: one cluster per GPU and layer."""

    times_s: Floats  # [layers - 1, clusters, clusters, GPUs, GPUs]
    sizes: Ints  # [layers, clusters]: copies in each
    copies_of_gpu: int  # over all layers, at most
    alike: bool  # whether all GPUs may be exchanged for one another

    @property
    def layers(self) -> int:
        """How many."""
        return int(self.sizes.shape[0])

    @property
    def clusters(self) -> int:
        """Of each layer; as many as GPUs."""
        return int(self.sizes.shape[1])

    @cached_property
    def unit_s(self) -> float:
        """The longest time of any pair: programs count in it, so that a solver's tolerance means little."""
        return float(self.times_s.max(initial=0.0)) or 1.0


def cluster_tokens(clustered: Held, routing: Floats) -> Floats:
    """C [layers - 1, clusters, clusters]: tokens from each cluster to each of the next layer."""
    parts = clustered / clustered.sum(axis=2, keepdims=True)
    tokens: Floats = np.einsum("lac,lab,lbd->lcd", parts[:-1], routing, parts[1:], optimize=True)
    return tokens


def exchange_times_s(clustered: Held, routing: Floats, *, token_bytes: float, bandwidth_gb_per_s: Floats) -> Floats:
    """[layers - 1, clusters, clusters, GPUs, GPUs]: for each pair of clusters on each pair of GPUs; 0 on the same."""
    sent_bytes = cluster_tokens(clustered, routing) * token_bytes
    per_byte_s = 1.0 / (bandwidth_gb_per_s * GIGA)
    np.fill_diagonal(per_byte_s, 0.0)
    times_s: Floats = np.einsum("lcd,gh->lcdgh", sent_bytes, per_byte_s)
    return times_s


def tails_s(exchange: Exchange, gpu_of_cluster: Ints) -> Floats:
    """[layers - 1]: of the slowest pair of GPUs."""
    pairs = itertools.pairwise(gpu_of_cluster)
    return np.array([tail_s(exchange, step, here, there) for step, (here, there) in enumerate(pairs)])


def tail_s(exchange: Exchange, step: int, here: Ints, there: Ints) -> float:
    """From one layer to the next, of the slowest pair of GPUs."""
    every = np.arange(exchange.clusters)
    times_s = exchange.times_s[step][every[:, None], every[None, :], here[:, None], there[None, :]]
    return float(times_s.max())
