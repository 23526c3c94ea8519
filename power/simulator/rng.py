"""Random numbers inside the engine: an own stream, so that a run is the same on every machine."""

import numpy as np

from fleet.numba_cache import jit_inner
from power.simulator.state import Record


@jit_inner
def _drawn(row: Record) -> float:
    """Return a number from 0 to 1 (SplitMix64, Steele, Lea, Flood 2014)."""
    row.random = row.random + np.uint64(0x9E3779B97F4A7C15)
    mixed = row.random
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@jit_inner
def strikes(row: Record, share: float, from_s: float, to_s: float) -> bool:
    """Return whether a fault hits now."""
    return bool(share > 0.0 and from_s <= row.now_s < to_s and _drawn(row) < share)
