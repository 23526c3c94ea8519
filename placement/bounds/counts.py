"""Replica counts to start from, and what the best pairing makes of counts, for all layers at once."""

import numpy as np

from placement.arrays import Floats, Ints


def greedy_counts(weights: Floats, *, slots: int, most: int) -> Ints:
    """[layers, experts]: every expert once, then again and again one more of that whose copies weigh most."""
    counts = np.ones(weights.shape, dtype=np.int64)
    rows, copies = np.arange(len(weights)), weights.copy()
    for _ in range(slots - weights.shape[1]):
        hottest = copies.argmax(axis=1)
        counts[rows, hottest] += 1
        now = counts[rows, hottest]
        copies[rows, hottest] = np.where(now < most, weights[rows, hottest] / now, -1.0)
    return counts


def paired_max_load(weights: Floats, counts: Ints, *, singles: int) -> float:
    """The fullest GPU of one layer when the heaviest copies lie alone and the others heaviest with lightest."""
    copies = np.sort(np.repeat(weights / counts, counts))
    paired = copies[: len(copies) - singles]
    together = paired + paired[::-1]
    return float(max(copies[-1], together.max(initial=0.0)))
