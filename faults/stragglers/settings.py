"""The parameters of the straggler detector, each with its reason.  docs/explanation/faults/stragglers.md"""

import math
from typing import Annotated, Final

from pydantic import Field

from fleet.documents import Frozen

DAY_S: Final = 86_400.0
# that a CUSUM of log-likelihood ratios of drift d passes the bar in a window is e^-bar d^2 e^(-1.166 d) / 2 (Siegmund
# 1985); at most this for any d
CHANCE: Final = 0.2

Positive = Annotated[float, Field(gt=0, le=1e6)]
Slowdown = Annotated[float, Field(ge=1.005, le=2)]


class StragglerSettings(Frozen):
    false_per_day: Positive = 0.2  # of the whole job, at most; a fifth of the target, so that a week can show it
    slowdowns: Annotated[tuple[Slowdown, ...], Field(min_length=1, max_length=8)] = (1.02, 1.03, 1.10)  # rising
    patience: Annotated[float, Field(gt=0, lt=1)] = 0.8  # share of false alarms for the smallest: only it takes minutes
    wander: Annotated[float, Field(gt=0, le=0.1)] = 0.003  # first guess (log): clocks, temperature; estimated later
    wander_memory_s: Annotated[float, Field(ge=10, le=1e5)] = 300.0
    spread: Positive = 0.01  # first guess of permanent differences between nodes of one role (log); estimated later
    memory_s: Annotated[float, Field(ge=60, le=1e6)] = 7200.0  # of a node's own history
    pause: Annotated[float, Field(gt=0, le=10)] = 0.25  # log: windows with pauses lie anywhere within this
    large: Annotated[float, Field(ge=3, le=20)] = 4.0  # standard deviations: above, it is a pause or a large slowdown
    hiccup_s: Positive = 12.0  # a slowdown that ends by then is no fault
    few: Annotated[int, Field(ge=2, le=100)] = 3  # peers of a role, for a usual
    alike: Annotated[float, Field(gt=0, lt=1)] = 0.5  # a replica this much as late as its node: data, not hardware
    # A smaller effect is reported without `isolate`, as in live jobs (docs/explanation/faults/slow.md, "Slow ranks"):
    # a false alarm is nearly always small.
    isolated: Slowdown = 1.05
    forget_windows: Annotated[int, Field(ge=1, le=10_000)] = 6

    @property
    def sizes(self) -> tuple[float, ...]:
        return tuple(math.log(each) for each in self.slowdowns)

    def bars(self, nodes: int, window_s: float) -> tuple[float, ...]:
        """Return the bars of the log-likelihood ratio per size, and of a run: windows x CHANCE e^-bar is its share."""
        rest = (1.0 - self.patience) / len(self.slowdowns)
        windows = nodes * DAY_S / window_s
        shares = (self.patience, *(rest for _ in self.slowdowns))
        return tuple(max(math.log(CHANCE * windows / (self.false_per_day * share)), 1.0) for share in shares)

    def least(self, window_s: float) -> int:
        """Return the number of windows that a hiccup can touch."""
        return math.ceil(self.hiccup_s / window_s) + 1

    def run(self, large_share: float, nodes: int, window_s: float, *, resumed_share: float = 1.0) -> int:
        """Return the number of large windows in a row that is no coincidence: log of share^run is beyond the last bar.

        `resumed_share`: of windows after a stop of the job, if one lies within the run; most runs have none.
        """
        chance = nats_of_large(large_share)
        bar = self.bars(nodes, window_s)[-1]
        run = math.ceil(bar / chance)
        while run > 2 and (run - 1) * chance >= bar + math.log(min(1.0, (run - 2) * resumed_share)):
            run -= 1
        return run


def nats_of_large(share: float) -> float:
    """Return the evidence of one large window, by the share of large windows."""
    return -math.log(min(max(share, 1e-6), 0.5))
