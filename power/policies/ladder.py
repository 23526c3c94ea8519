"""The ladder: clocks by phase and priority, the mildest that the next seconds allow; routing; and watts to admit by.

At every reading, with n[k,p,f] the servers of kind k, priority p in phase f, w the watts of the believed curves:

    correction   follows  reading / sum n w(clocks asked)                     what the curves get wrong, smoothed
    s_p          follows  prompts / busy                                      of each priority, smoothed
    reading_p    = min(busy_p, s_p busy_p + z sqrt(busy_p s_p (1 - s_p)))     prompts read at once: a binomial quantile
    forecast(r)  = correction * (1 + growth) * sum n' w(clocks of rung r),    n' = n with busy_p split by reading_p
    rung         = the first r with forecast(r) <= share * budget; back to a milder one only where it leaves `ease` free

The rungs are those of `frontier`.  Who reads a prompt changes within a second or two, so the present split says less
about the next seconds than its mean and its spread do; who is busy changes slowly, so it is taken as it is.

Routing looks further ahead, at the pressure: what the row would draw at full clocks over its share, smoothed over a
minute.  The higher it is, the more idle servers may sleep and the more requests write together, unless so much is read
that those who share a server would wait for each other's prompts.  Below `calm_share` of the budget with everything
mild nothing is reckoned at all.  docs/power/policies.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from power.admission import HIGH_HOLD_SHARE, LOW_HOLD_SHARE
from power.levers import Phase, Priority, Routing, Setting
from power.policies.frontier import Rung, clock_grid, frontier, levers_of, training_w
from power.policies.loss import Slack
from power.readings import Seen
from power.servers import BLOOM_A100, ServerModel
from power.workload.work import TrainingJob

Floats = npt.NDArray[np.float64]

IN_BAND_S = 1.0
PRIORITIES, PHASES, TOKEN, PROMPT = len(Priority), len(Phase), int(Phase.TOKEN), int(Phase.PROMPT)
TRUSTED_AGE_S = 4.0  # an older reading says nothing of the present counts
LEAST_ALLOWED_W = 1.0  # a guard may keep back the whole budget
LEAST_CORRECTION, MOST_CORRECTION = 0.85, 1.25  # beyond, it is not the curves that are wrong: a brake, a dead meter


class Step(NamedTuple):
    """Routing from a pressure on: what the row would draw at full clocks, over its share of the budget."""

    above: float
    routing: Routing


# Where servers can write for several: high priority shares, for its answers are long and its prompts short, so that a
# pair saves a server for little; a low prompt is long and keeps those who write beside it waiting.  Chosen by trial.
CONSOLIDATE = (Step(1.0, Routing(high_together=2)),)


class Margins(NamedTuple):
    """What the ladder leaves free, and how fast it learns."""

    share: float = 0.975  # of the budget
    ease: float = 0.01  # of that: a milder rung must leave so much, or orders would come and go with every reading
    low_hold: float = LOW_HOLD_SHARE
    high_hold: float = HIGH_HOLD_SHARE
    growth: float = 0.005
    spread: float = 1.0  # z: standard deviations of the prompts read at once
    calm_share: float = 0.85
    learn_correction: float = 0.01  # of the difference, at each reading
    learn_prompts: float = 0.03
    learn_pressure: float = 0.03
    # Share of busy servers that read prompts, beyond which who shares a server would wait too long for others' prompts.
    most_reading: float = 0.10
    routing_band: float = 0.10  # a routing step is undone this far below where it was taken


class Climb(NamedTuple):
    """What the ladder remembers."""

    rung: int = 0
    correction: float = 1.0
    low_prompts: float = 0.05  # share of busy servers that read prompts
    high_prompts: float = 0.05
    pressure: float = 0.0
    step: int = 0  # of routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Watts at each rung, worked out once."""

    peak_w: Floats  # [rung, kind * priority * phase], a training server as it computes
    mean_w: Floats  # the same, a training server over its iterations


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Climbs as far as the forecast asks, and no further."""

    kinds: tuple[ServerModel, ...] = (BLOOM_A100,)
    mix: Floats | None = None  # servers expected in each [kind, priority, phase]; None: as many of each
    jobs: tuple[TrainingJob, ...] = ()
    slack: Slack = field(default_factory=Slack)
    margins: Margins = field(default_factory=Margins)
    routing: tuple[Step, ...] = ()
    command_delay_s: float = IN_BAND_S
    name: str = "ladder"

    @cached_property
    def rungs(self) -> tuple[Rung, ...]:
        """From full clocks down."""
        mix = np.ones((len(self.kinds), len(Priority), len(Phase))) if self.mix is None else self.mix
        return frontier(levers_of(self.kinds, mix, slack=self.slack, jobs=self.jobs), clock_grid())

    def start(self) -> Climb:
        """On the ground."""
        return Climb()

    def decide(self, state: Climb, seen: Seen) -> tuple[Climb, Setting]:
        """One reading further."""
        if seen.reading.row_w < self.calm_below_w(state, seen.budget_w):
            return state, self._setting(state, seen.budget_w)
        margins, peak_w = self.margins, self._draws.peak_w
        correction = self._corrected(state, seen)
        expected, low, high = self._expected(state, seen)
        forecast_w = peak_w.dot(expected)
        allowed_w = max(LEAST_ALLOWED_W, margins.share * seen.budget_w / (correction * (1 + margins.growth)))
        rung = self._rung(state.rung, forecast_w, allowed_w)
        pressure = _towards(state.pressure, float(forecast_w[0]) / allowed_w, margins.learn_pressure)
        after = Climb(rung, correction, low, high, pressure, self._step(state.step, pressure, max(low, high)))
        return after, self._setting(after, seen.budget_w)

    def calm_below_w(self, state: Climb, budget_w: float) -> float:
        """A share of the budget, while every lever is mild."""
        return -inf if state.rung or state.step else self.margins.calm_share * budget_w

    def safe_rung(self, servers: npt.ArrayLike, budget_w: float) -> Rung | None:
        """The mildest rung under which all servers[kind, priority] may be in their hungriest phase, for who cannot see
        what they do; None: there is none.  Servers that train count under `jobs`, not here.
        """
        serving = np.asarray(servers, dtype=float)
        shape = (-1, len(self.kinds), len(Priority), len(Phase))
        hungriest_w = self._draws.peak_w.reshape(shape)[..., [Phase.IDLE, Phase.TOKEN, Phase.PROMPT]].max(axis=-1)
        training_w_at = [
            sum(job.servers * training_w(job, rung.clocks.training) for job in self.jobs) for rung in self.rungs
        ]
        worst_w = (hungriest_w * serving).sum(axis=(1, 2)) + np.array(training_w_at)
        fits = np.flatnonzero(worst_w <= budget_w)
        return self.rungs[int(fits[0])] if len(fits) else None

    def _jobs_w(self, rung: Rung) -> float:
        return sum(job.servers * training_w(job, rung.clocks.training) for job in self.jobs)

    @cached_property
    def _draws(self) -> Draws:
        shape = (len(self.rungs), len(self.kinds), len(Priority), len(Phase))
        peak_w = np.zeros(shape)
        for index, rung in enumerate(self.rungs):
            for (kind, model), priority, phase in product(enumerate(self.kinds), Priority, Phase):
                peak_w[index, kind, priority, phase] = model.watts(phase, rung.clocks.of(priority, phase))
        mean_w = peak_w.copy()
        if self.jobs:
            for index, rung in enumerate(self.rungs):
                peak_w[index, ..., Phase.TRAINING], mean_w[index, ..., Phase.TRAINING] = _training_w(
                    self.jobs, rung.clocks.training
                )
        flat = (len(self.rungs), -1)
        return Draws(peak_w=peak_w.reshape(flat), mean_w=mean_w.reshape(flat))

    @cached_property
    def _routes(self) -> tuple[Routing, ...]:
        return (Routing(), *(step.routing for step in self.routing))

    def _setting(self, state: Climb, budget_w: float) -> Setting:
        return Setting(
            self.rungs[state.rung].clocks,
            self.margins.low_hold * budget_w,
            self.margins.high_hold * budget_w,
            self._routes[state.step],
        )

    def _rung(self, before: int, forecast_w: Floats, allowed_w: float) -> int:
        """The first that fits; down from where it was only as far as fits with room to spare."""
        fits = int(np.count_nonzero(forecast_w > allowed_w))
        if fits < before:
            eased = int(np.count_nonzero(forecast_w > allowed_w * (1 - self.margins.ease)))
            fits = max(fits, min(before, eased))
        return min(fits, len(self.rungs) - 1)

    def _corrected(self, state: Climb, seen: Seen) -> float:
        if seen.now_s - seen.reading.at_s > TRUSTED_AGE_S:
            return state.correction
        believed_w = float(self._draws.mean_w[state.rung].dot(seen.counts.ravel()))
        if believed_w <= 0:
            return state.correction
        ratio = min(max(seen.reading.row_w / believed_w, LEAST_CORRECTION), MOST_CORRECTION)
        return _towards(state.correction, ratio, self.margins.learn_correction)

    def _expected(self, state: Climb, seen: Seen) -> tuple[list[float], float, float]:
        """Counts with the busy split as it will be, and the shares of prompts as now learnt."""
        counts: list[float] = seen.counts.ravel().tolist()
        low = self._split(counts, Priority.LOW * PHASES, state.low_prompts)
        high = self._split(counts, Priority.HIGH * PHASES, state.high_prompts)
        return counts, low, high

    def _split(self, counts: list[float], first: int, before: float) -> float:
        """In place, for the priority whose phases begin at `first`; the kinds lie two priorities apart."""
        margins, prompts, busy = self.margins, 0.0, 0.0
        starts = range(first, len(counts), PRIORITIES * PHASES)
        for start in starts:
            prompts += counts[start + PROMPT]
            busy += counts[start + PROMPT] + counts[start + TOKEN]
        if busy <= 0:
            return before
        share = _towards(before, prompts / busy, margins.learn_prompts)
        read = min(1.0, share + margins.spread * sqrt(share * (1 - share) / busy))
        for start in starts:
            both = counts[start + PROMPT] + counts[start + TOKEN]
            counts[start + PROMPT], counts[start + TOKEN] = read * both, (1 - read) * both
        return share

    def _step(self, step: int, pressure: float, reading: float) -> int:
        """One step up where its pressure is passed, one down where this one's is left by the band."""
        if reading > self.margins.most_reading:
            return max(0, step - 1)
        if step < len(self.routing) and pressure > self.routing[step].above:
            return step + 1
        if step and pressure < self.routing[step - 1].above - self.margins.routing_band:
            return step - 1
        return step


def _training_w(jobs: Sequence[TrainingJob], clock: float) -> tuple[float, float]:
    """The mean server of all jobs: as it computes, and over its iterations."""
    servers = sum(job.servers for job in jobs)
    peak_w = sum(job.servers * training_w(job, clock) for job in jobs) / servers
    rise_w = sum(job.servers * (training_w(job, clock) - job.trough_w) * (1 - job.compute_share) for job in jobs)
    return peak_w, peak_w - rise_w / servers


def _towards(before: float, after: float, weight: float) -> float:
    return before + weight * (after - before)
