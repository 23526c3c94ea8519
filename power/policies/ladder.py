"""The ladder: clocks by phase and priority, the highest that the next seconds allow; routing; admission limits.

docs/explanation/power/policies.md has the formulas of a step and of routing.  The set of servers that read prompts
changes within a second or two, so its mean and spread predict better than its present size.  The set of busy servers
changes slowly, so its present size is used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from math import inf, sqrt
from operator import mul
from typing import NamedTuple

import numpy as np

from power.admission import HIGH_LIMIT_SHARE, LOW_LIMIT_SHARE
from power.arrays import Floats
from power.controls import Phase, Priority, Routing, Setting
from power.policies.frontier import Rung, Slack, clock_grid, controls_of, frontier
from power.server_model import BLOOM_A100, ServerModel
from power.telemetry import RowObservation
from power.workload.workload import TrainingJob

Watts = tuple[tuple[float, ...], ...]

IN_BAND_S = 1.0
PRIORITIES, PHASES, TOKEN, PROMPT = len(Priority), len(Phase), int(Phase.TOKEN), int(Phase.PROMPT)
TRUSTED_AGE_S = 4.0  # an older reading does not match the present counts
MIN_ALLOWED_W = 1.0  # a guard may keep back the whole budget
MIN_CORRECTION, MAX_CORRECTION = 0.85, 1.25  # beyond, it is not the curves that are wrong: a brake, a dead meter


class Step(NamedTuple):
    """Routing from a pressure on.  Pressure is the power at full clocks over the row's share of the budget."""

    above: float
    routing: Routing


# On servers that batch: spare servers sleep first under pressure, since an idle one draws 2.1 kW and new requests join
# batches.  Only beyond that are requests batched before an idle server is used, high priority first: its prompts are
# short, so its neighbours hardly wait.  Chosen by trial.
CONSOLIDATE = (
    Step(0.95, Routing(parked_share=0.1)),
    Step(1.0, Routing(parked_share=0.2)),
    Step(1.05, Routing(high_together=2, parked_share=0.2)),
)


class Margins(NamedTuple):
    share: float = 0.975  # of the budget
    ease: float = 0.01  # of that share: a higher-clock rung must leave so much, to avoid oscillation
    low_limit: float = LOW_LIMIT_SHARE
    high_limit: float = HIGH_LIMIT_SHARE
    growth: float = 0.005
    spread: float = 1.0  # z: standard deviations of the prompts read at once
    calm_share: float = 0.85
    learn_correction: float = 0.01  # of the difference, at each reading
    learn_prompts: float = 0.03
    learn_pressure: float = 0.03
    # Share of busy servers that read prompts, beyond which batched requests would wait too long for others' prompts.
    max_reading: float = 0.10
    routing_band: float = 0.10  # a routing step is undone this far below where it was taken


class LadderState(NamedTuple):
    rung: int = 0
    correction: float = 1.0
    low_prompts: float = 0.05  # share of busy servers that read prompts
    high_prompts: float = 0.05
    pressure: float = 0.0
    step: int = 0  # of routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Watts at each rung, worked out once.  Plain numbers: for so few, arrays would cost more than they save."""

    peak_w: Watts  # [rung][kind * priority * phase], a training server as it computes
    mean_w: Watts  # the same, a training server over its iterations


@dataclass(frozen=True, kw_only=True)
class Ladder:
    kinds: tuple[ServerModel, ...] = (BLOOM_A100,)
    mix: Floats | None = None  # servers expected in each [model, priority, phase]; None: equal numbers
    jobs: tuple[TrainingJob, ...] = ()
    slack: Slack = field(default_factory=Slack)
    margins: Margins = field(default_factory=Margins)
    routing: tuple[Step, ...] = ()
    command_delay_s: float = IN_BAND_S
    name: str = "ladder"

    @cached_property
    def rungs(self) -> tuple[Rung, ...]:
        mix = np.ones((len(self.kinds), len(Priority), len(Phase))) if self.mix is None else self.mix
        return frontier(controls_of(self.kinds, mix, slack=self.slack, jobs=self.jobs), clock_grid())

    def start(self) -> LadderState:
        return LadderState()

    def decide(self, state: LadderState, observed: RowObservation) -> tuple[LadderState, Setting]:
        budget_w = observed.budget_w
        if observed.reading.row_w < self.calm_below_w(state, budget_w):
            return state, self._setting(state.rung, state.step, budget_w)
        margins, (low_places, high_places) = self.margins, self._places
        counts: list[float] = observed.counts.ravel().tolist()
        correction = self._corrected(state, observed, counts)
        low = self._split(counts, low_places, state.low_prompts)
        high = self._split(counts, high_places, state.high_prompts)
        allowed_w = max(MIN_ALLOWED_W, margins.share * budget_w / (correction * (1 + margins.growth)))
        rung = self._rung(state.rung, counts, allowed_w)
        full_w = _draw_w(self._draws.peak_w[0], counts)
        pressure = state.pressure + margins.learn_pressure * (full_w / allowed_w - state.pressure)
        step = self._step(state.step, pressure, max(high, low))
        return LadderState(rung, correction, low, high, pressure, step), self._setting(rung, step, budget_w)

    def calm_below_w(self, state: LadderState, budget_w: float) -> float:
        """Return a share of the budget while every control is at high clock."""
        return -inf if state.rung or state.step else self.margins.calm_share * budget_w

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
        return Draws(peak_w=_rows(peak_w), mean_w=_rows(mean_w))

    @cached_property
    def _routes(self) -> tuple[Routing, ...]:
        return (Routing(), *(step.routing for step in self.routing))

    @cached_property
    def _places(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return, by priority, the positions in the flat counts of servers that write and that read, per model."""
        starts = range(0, len(self.kinds) * PRIORITIES * PHASES, PRIORITIES * PHASES)
        return tuple(
            tuple((start + priority * PHASES + TOKEN, start + priority * PHASES + PROMPT) for start in starts)
            for priority in Priority
        )

    @cached_property
    def _setting(self) -> Callable[[int, int, float], Setting]:
        """Return the setting of a rung, a step and a budget: the same object each time, for fast comparison."""
        return lru_cache(maxsize=1024)(self._made)

    def _made(self, rung: int, step: int, budget_w: float) -> Setting:
        low_limit_w, high_limit_w = self.margins.low_limit * budget_w, self.margins.high_limit * budget_w
        return Setting(self.rungs[rung].clocks, low_limit_w, high_limit_w, self._routes[step])

    def _rung(self, before: int, counts: list[float], allowed_w: float) -> int:
        """Return the first rung that fits from the present one on, or a higher-clock one with a margin."""
        peak_w = self._draws.peak_w
        last, rung = len(peak_w) - 1, before
        if _draw_w(peak_w[rung], counts) > allowed_w:
            while rung < last:
                rung += 1
                if _draw_w(peak_w[rung], counts) <= allowed_w:
                    break
            return rung
        eased_w = allowed_w * (1 - self.margins.ease)
        while rung and _draw_w(peak_w[rung - 1], counts) <= eased_w:
            rung -= 1
        return rung

    def _corrected(self, state: LadderState, observed: RowObservation, counts: list[float]) -> float:
        at_s, row_w = observed.reading
        modelled_w = _draw_w(self._draws.mean_w[state.rung], counts)
        if modelled_w <= 0 or observed.now_s - at_s > TRUSTED_AGE_S:
            return state.correction
        ratio = min(max(row_w / modelled_w, MIN_CORRECTION), MAX_CORRECTION)
        return state.correction + self.margins.learn_correction * (ratio - state.correction)

    def _split(self, counts: list[float], places: tuple[tuple[int, int], ...], before: float) -> float:
        """Split the busy servers of a priority by the expected prompts, in place; return the learnt share."""
        prompts = busy = 0.0
        for token, prompt in places:
            prompts += counts[prompt]
            busy += counts[prompt] + counts[token]
        if busy <= 0:
            return before
        margins = self.margins
        share = before + margins.learn_prompts * (prompts / busy - before)
        read = min(1.0, share + margins.spread * sqrt(share * (1 - share) / busy))
        for token, prompt in places:
            both = counts[prompt] + counts[token]
            counts[prompt], counts[token] = read * both, (1 - read) * both
        return share

    def _step(self, step: int, pressure: float, reading: float) -> int:
        """Return the routing step: one up above its pressure, one down below its pressure by the band."""
        if reading > self.margins.max_reading:
            return max(0, step - 1)
        if step < len(self.routing) and pressure > self.routing[step].above:
            return step + 1
        if step and pressure < self.routing[step - 1].above - self.margins.routing_band:
            return step - 1
        return step


def _training_w(jobs: Sequence[TrainingJob], clock: float) -> tuple[float, float]:
    """Return the power of the mean server of all jobs: while computing, and over its iterations."""
    servers = sum(job.servers for job in jobs)
    peak_w = sum(job.servers * job.peak_w(clock) for job in jobs) / servers
    rise_w = sum(job.servers * (job.peak_w(clock) - job.trough_w) * (1 - job.compute_share) for job in jobs)
    return peak_w, peak_w - rise_w / servers


def _rows(watts: Floats) -> Watts:
    return tuple(map(tuple, watts.reshape(len(watts), -1).tolist()))


def _draw_w(each_w: tuple[float, ...], counts: list[float]) -> float:
    return sum(map(mul, each_w, counts), 0.0)
