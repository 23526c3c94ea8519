"""The numbers of the straggler watch, each with its reason.  docs/faults/stragglers.md"""

import math
from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

DAY_S = 86_400.0
OVERSHOOT = 1.166  # of a random walk over its boundary (Siegmund 1985): 2 x 0.583

Positive = Annotated[float, Field(gt=0, le=1e6)]


class StragglerSettings(Frozen):
    """Of one job."""

    false_per_day: Positive = 0.5  # of the whole job; half of what is promised
    slowdown: Annotated[float, Field(ge=1.005, le=2)] = 1.03  # that is to be found soonest
    winsor: Annotated[float, Field(ge=1, le=10)] = 2.0  # standard deviations that one window may count
    wander: Annotated[float, Field(ge=0, le=0.1)] = 0.0035  # of a node's mean over minutes (log): clocks, temperature
    large: Annotated[float, Field(ge=3, le=20)] = 4.0  # standard deviations: no jitter, a pause or a large slowdown
    hiccup_s: Positive = 12.0  # what is over by then is no fault
    spread: Positive = 0.01  # first guess of how far nodes of one role differ for ever (log); estimated afterwards
    memory_s: Annotated[float, Field(ge=60, le=1e6)] = 7200.0  # of a node's own history
    guard: Annotated[float, Field(ge=0, le=5)] = (
        1.0  # standard errors of a node's usual that are taken off the evidence
    )
    few: Annotated[int, Field(ge=2, le=100)] = 3  # peers of a role, from which they say what is usual
    alike: Annotated[float, Field(gt=0, lt=1)] = 0.5  # a replica this much as late as its node: data, not hardware
    forget_windows: Annotated[int, Field(ge=1, le=10_000)] = 6

    def bar(self, reference: float, nodes: int, window_s: float) -> float:
        """Height of the CUSUM at which one false alarm takes nodes x windows of a day / false_per_day windows.

        Siegmund: ARL = (exp(2 k b) - 2 k b - 1) / (2 k^2), b = h + 1.166; solved for h without the small terms.
        """
        arl = nodes * DAY_S / window_s / self.false_per_day
        return max(math.log(2.0 * reference**2 * arl + 1.0) / (2.0 * reference) - OVERSHOOT, 1.0)

    def run(self, large_share: float, nodes: int, window_s: float) -> int:
        """How many large windows in a row are no coincidence: nodes x windows of a day x share^run <= false_per_day."""
        arl = nodes * DAY_S / window_s / self.false_per_day
        least = math.ceil(self.hiccup_s / window_s) + 1  # as many windows as a hiccup can touch
        return max(least, math.ceil(math.log(arl) / -math.log(min(max(large_share, 1e-6), 0.5))))
