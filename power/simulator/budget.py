"""What a row may draw, and when a fault would hurt it most: both read off an uncapped run."""

import numpy as np

from power.policies.thresholds import Untouched
from power.simulator.outcome import Outcome
from power.simulator.run import simulate
from power.simulator.spec import RowSpec
from power.simulator.state import WINDOW_S
from power.workload import Work

POLCA_PEAK_SHARE = 0.79  # peak of the uncapped row over what is provisioned for it (POLCA, arXiv 2308.12908)
MINUTE_S = 60.0
UNLIMITED_W = 1e9  # a budget that nothing reaches


def uncapped(spec: RowSpec, work: Work, *, seed: int = 0) -> Outcome:
    """The row at full clocks without any limit: what budgets and latencies are compared with."""
    return simulate(spec.model_copy(update={"budget_w": UNLIMITED_W}), work, policy=Untouched(), bare=True, seed=seed)


def provisioned_w(outcome: Outcome, *, peak_share: float = POLCA_PEAK_SHARE) -> float:
    """The budget behind which an uncapped run peaks at this share of it."""
    return outcome.peak_w / peak_share


def worst_minute_s(outcome: Outcome) -> float:
    """When the minute of the highest mean power begins: the worst moment for a fault."""
    windows = min(round(MINUTE_S / WINDOW_S), len(outcome.readings_w))
    sums = np.convolve(outcome.readings_w, np.ones(windows), "valid")
    return float(np.argmax(sums)) * WINDOW_S
