"""Observations of a row for tests of policies."""

import numpy as np
from hypothesis import strategies as st

from power.arrays import Floats
from power.controls import Phase, Priority
from power.telemetry import Reading, RowObservation

BUDGET_W = 200_000.0


def observed(
    *, used: float = 0.5, now_s: float = 100.0, counts: Floats | None = None, age_s: float = 0.0, kinds: int = 1
) -> RowObservation:
    """A reading of this share of the budget."""
    known = np.zeros((kinds, len(Priority), len(Phase))) if counts is None else counts
    return RowObservation(now_s, Reading(now_s - age_s, used * BUDGET_W), known, BUDGET_W)


def busy(*, low: tuple[float, float] = (20, 4), high: tuple[float, float] = (22, 2), idle: float = 0) -> Floats:
    """Servers in the token phase and in the prompt phase, for each priority."""
    counts = np.zeros((1, len(Priority), len(Phase)))
    for priority, (writes, reads) in ((Priority.LOW, low), (Priority.HIGH, high)):
        counts[0, priority, Phase.TOKEN], counts[0, priority, Phase.PROMPT] = writes, reads
        counts[0, priority, Phase.IDLE] = idle
    return counts


servers = st.integers(min_value=0, max_value=40)
shares = st.floats(min_value=0, max_value=1.5)


@st.composite
def any_counts(draw: st.DrawFn, *, kinds: int = 1) -> Floats:
    """Servers in any phase."""
    size = kinds * len(Priority) * len(Phase)
    return np.array(draw(st.lists(servers, min_size=size, max_size=size)), dtype=float).reshape(
        kinds, len(Priority), len(Phase)
    )
