"""Finds nodes that compute longer than usual and than their peers.  docs/explanation/faults/stragglers.md

A run of large windows longer than pauses make by chance names a node too, so a large slowdown need not wait.  The usual
is learnt neither from large windows nor from a named node, whose slowdown is known only roughly.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.fabric import Floats, Ints
from faults.stragglers import cusum as of_bank
from faults.stragglers import kalman as of_filter
from faults.stragglers import noise_scales, peers
from faults.stragglers.cusum import CusumBank, Observed, outlasts_hiccup, windows_of
from faults.stragglers.kalman import FilterState
from faults.stragglers.noise_scales import Scales
from faults.stragglers.peers import Roles
from faults.stragglers.settings import StragglerSettings

RECENT_S: Final = 60.0  # over which nodes of a replica are compared, and a named one with its slowdown
RECOVERED: Final = 0.5  # of the slowdown
UNSURE: Final = 0.5  # of the slowdown: the part that may have been its usual
MAX: Final = 1.5  # bars: more evidence would decay slowly
LARGE_MEMORY: Final = 1e6  # node-windows over which their share is estimated
RESUMED_RATE: Final = 1e-3  # per window: the share of stops is estimated over an hour and a half
EVIDENCE: Final = ("compute-gap",)


@dataclass(frozen=True, slots=True)
class StragglerState:
    scales: Scales
    filter_state: FilterState
    bank: CusumBank
    shift: Floats  # known lateness of named nodes
    recent_lateness: tuple[
        Floats, ...
    ]  # lateness in the windows of the last minute, the newest first; NaN if not observed
    run: Floats  # large windows in a row
    run_total: Floats  # lateness in them
    span: Floats  # windows since its start, unobserved ones included
    interrupted: NDArray[np.bool_]  # whether the job stopped within it
    large_share: float  # of all windows
    resumed_share: float  # of windows after a stop of the job
    observed: NDArray[np.bool_]  # in the last window
    unsupported: Mapping[int, int]  # named nodes: windows without support
    named: Mapping[int, Diagnosis]
    now_s: float | None
    silent_s: float  # since the last observation

    def recent(self, nodes: Ints, windows: int) -> Floats:
        """Return the mean lateness of these nodes in the newest windows in which each was observed; 0 without any."""
        reported = np.array([window[nodes] for window in self.recent_lateness[: max(windows, 1)]])
        finite = np.isfinite(reported)
        return np.asarray(np.where(finite, reported, 0.0).sum(axis=0) / np.maximum(finite.sum(axis=0), 1))


class _Suspect(NamedTuple):
    node: int
    size: int | None  # None: by a run of large windows
    since_s: float
    windows: int  # observed windows since, or more
    late: float
    odds: float


class Stragglers:
    def __init__(self, nodes: int | Roles, settings: StragglerSettings | None = None) -> None:
        self.roles = Roles.alike(nodes) if isinstance(nodes, int) else nodes
        self.nodes = int(self.roles.stage.size)
        self.settings = settings or StragglerSettings()
        self._sizes = np.array(self.settings.sizes)
        self._alone = self.roles.alone(self.settings.few)

    def start(self) -> StragglerState:
        zero = np.zeros(self.nodes)
        none: Mapping[int, int] = MappingProxyType({})
        return StragglerState(
            noise_scales.start(self.nodes, self.settings), of_filter.start(self.nodes),
            of_bank.start(self._sizes.size, self.nodes), zero, (), zero, zero, zero, np.zeros(self.nodes, np.bool_),
            1e-3, 1e-2, np.zeros(self.nodes, np.bool_), none, MappingProxyType({}), None, 0.0,
        )  # fmt: skip

    def step(
        self, state: StragglerState, gaps_s: Floats, now_s: float, *, window_s: float | None = None
    ) -> tuple[StragglerState, tuple[Diagnosis, ...]]:
        """Add one window.  `gaps_s`: mean time to compute per node, NaN if not observed; the window ends at `now_s`."""
        if window_s is None:
            window_s = now_s - state.now_s if state.now_s is not None else now_s
        window_s = max(window_s, 1e-3)
        finite = np.isfinite(gaps_s) & (gaps_s > 0.0)
        if not finite.any():  # a stopped job gives no compute times
            silent = replace(state, now_s=now_s, silent_s=state.silent_s + window_s)
            return silent, tuple(state.named[node] for node in sorted(state.named))
        known, late = self._late(state, np.log(np.where(finite, gaps_s, np.nan)))
        after = self._learn(replace(state, scales=known), late, now_s, window_s)
        return self._name(after, now_s, window_s)

    def _late(self, state: StragglerState, reported: Floats) -> tuple[Scales, Floats]:
        own = state.filter_state.usual + state.filter_state.sway + state.shift
        common = peers.common(reported - own, self.roles, few=self.settings.few, noise=state.scales.noise)
        late = reported - common
        return noise_scales.by_window(state.scales, late, self.settings), late

    def _learn(self, state: StragglerState, late: Floats, now_s: float, window_s: float) -> StragglerState:
        known, settings = state.scales, self.settings
        observed = np.isfinite(late)
        seconds = window_s + state.silent_s
        before = of_filter.ahead(
            state.filter_state, known, settings, alone=self._alone, seconds=seconds, window_s=window_s
        )
        deviation = of_filter.deviation(before, known.noise)
        residual = np.where(observed, late - before.usual - before.sway, state.shift)
        surprise = residual - state.shift
        large = observed & (surprise > settings.large * deviation)
        gain, after = of_filter.gain(before, observed & ~large & (state.shift == 0.0), deviation)
        limit = of_filter.WINSOR * gain.deviation
        cut = np.minimum(np.maximum(surprise, -limit), limit)
        after = replace(after, usual=before.usual + gain.usual * cut, sway=before.sway + gain.sway * cut)
        bars = settings.bars(self.nodes, window_s)
        keep = math.exp(-seconds / settings.wander_memory_s)
        bank = of_bank.step(
            state.bank, Observed(observed, before.usual + before.sway, surprise, now_s - window_s), after, gain,
            sizes=self._sizes, keep=keep, most=bars[-1] / settings.least(window_s),
            pause_density=state.large_share / settings.pause,
        )  # fmt: skip
        bank = replace(bank, evidence=np.minimum(bank.evidence, MAX * bars[-1]))
        kept = max(round(RECENT_S / window_s), 1)
        goes_on, resumed = (state.run > 0.0) & (large | ~observed), state.silent_s > 0.0
        return replace(
            state,
            scales=noise_scales.by_block(known, late - surprise + cut, observed, window_s, settings),
            filter_state=after,
            bank=bank,
            recent_lateness=(np.where(observed, residual, np.nan), *state.recent_lateness)[:kept],
            run=np.where(observed, np.where(large, state.run + 1.0, 0.0), state.run),
            run_total=np.where(observed, np.where(large, state.run_total + surprise, 0.0), state.run_total),
            span=np.where(goes_on, state.span + round(seconds / window_s), np.where(large, 1.0, 0.0)),
            interrupted=goes_on & (state.interrupted | resumed),
            large_share=_share(state.large_share, large, observed),
            resumed_share=state.resumed_share + RESUMED_RATE * (float(resumed) - state.resumed_share),
            observed=observed,
            now_s=now_s,
            silent_s=0.0,
        )

    def _name(
        self, state: StragglerState, now_s: float, window_s: float
    ) -> tuple[StragglerState, tuple[Diagnosis, ...]]:
        named, unsupported = dict(state.named), dict(state.unsupported)
        for node in list(named):
            recent_lateness = float(state.recent(np.array([node]), len(state.recent_lateness))[0])
            still = not state.observed[node] or recent_lateness > RECOVERED * state.shift[node]
            unsupported[node] = 0 if still else unsupported[node] + 1
            if unsupported[node] >= self.settings.forget_windows:
                state = _recovered(state, node, doubtful=not named[node].isolate)
                del named[node], unsupported[node]
        for found in self._suspects(state, now_s, window_s):
            if not self._own(state, found):
                state = self._limit_evidence(state, found.node, window_s)
            else:
                state = _with_known_lateness(state, found)
                diagnosis = self._diagnosis(found, float(state.shift[found.node]), now_s)
                old = named.get(found.node)
                kept = {} if old is None else {"detected_s": old.detected_s, "onset_s": old.onset_s}
                named[found.node] = diagnosis.model_copy(update=kept)
                unsupported[found.node] = 0
        after = replace(state, named=MappingProxyType(named), unsupported=MappingProxyType(unsupported))
        return after, tuple(named[node] for node in sorted(named))

    def _suspects(self, state: StragglerState, now_s: float, window_s: float) -> list[_Suspect]:
        bank, settings = state.bank, self.settings
        *sums, last = settings.bars(self.nodes, window_s)
        bars, least = np.array(sums), settings.least(window_s)
        run = settings.run(state.large_share, self.nodes, window_s)
        across = settings.run(state.large_share, self.nodes, window_s, resumed_share=state.resumed_share)
        same = outlasts_hiccup(
            state.recent_lateness,
            state.run,
            settings,
            noise=state.scales.noise,
            large_share=state.large_share,
            bar=last,
            window_s=window_s,
        )
        runs = np.where(same, windows_of(settings, window_s), np.where(state.interrupted, across, run))
        enough = (bank.evidence >= bars[:, None]) & (bank.count >= least)
        long = state.observed & (same | ((state.run >= runs) & (state.span >= least)))
        found = []
        for node in np.flatnonzero(enough.any(axis=0) | long).tolist():
            size = int(np.argmax(enough[:, node] * bank.evidence[:, node]))
            if enough[size, node]:
                late = float(bank.total[size, node] / bank.count[size, node])
                odds, since_s = float(bank.evidence[size, node] / bars[size]), float(bank.since_s[size, node])
                found.append(_Suspect(node, size, since_s, math.ceil((now_s - since_s) / window_s), late, odds))
            else:
                count, since_s = float(state.run[node]), now_s - float(state.span[node]) * window_s
                late = float(state.run_total[node] / count)
                found.append(_Suspect(node, None, since_s, round(count), late, count / float(runs[node])))
        return found

    def _own(self, state: StragglerState, found: _Suspect) -> bool:
        """Return whether the node itself is late, and not all nodes with the same data, in the same windows.

        Unobserved nodes do not count, and too few observed ones give no result.
        """
        node = found.node
        same: Ints = np.flatnonzero(self.roles.replica == self.roles.replica[node])
        others = same[(same != node) & (state.observed[same])]
        late = float(_mean_lateness(state, np.array([node]), found.size, found.windows)[0])
        if min(late, found.late) <= self.settings.alike * self._sizes[0]:  # it is no longer late
            return False
        if same.size <= 2:
            return True
        enough = max(min(same.size, peers.REPLICA_FEW) - 1, 2)
        others_late = _mean_lateness(state, others, found.size, found.windows)
        return others.size >= enough and float(np.median(others_late)) < self.settings.alike * late

    def _limit_evidence(self, state: StragglerState, node: int, window_s: float) -> StragglerState:
        """Limit evidence that came from the data to half of each bar: it must not count against the node afterwards."""
        evidence, run = state.bank.evidence.copy(), state.run.copy()
        half = np.array(self.settings.bars(self.nodes, window_s)[:-1]) / 2.0
        evidence[:, node], run[node] = np.minimum(evidence[:, node], half), 0.0
        return replace(state, bank=replace(state.bank, evidence=evidence), run=run)

    def _diagnosis(self, found: _Suspect, late: float, now_s: float) -> Diagnosis:
        return Diagnosis(
            fault=FaultClass.NONCOMM_SLOW,
            scope=Scope.NODE,
            node=found.node,
            onset_s=found.since_s,
            detected_s=now_s,
            isolate=late >= math.log(self.settings.isolated),
            confidence=round(1.0 - 0.5 * math.exp(1.0 - 3.0 * max(1.0, found.odds)), 4),
            reason=f"node {found.node} computes {100.0 * float(np.expm1(late)):.1f} % longer than it and its peers do",
            evidence=EVIDENCE,
        )


def _mean_lateness(state: StragglerState, nodes: Ints, size: int | None, windows: int) -> Floats:
    """Return the mean lateness beside the prediction of the filter with the slowdown: the other takes it for sway."""
    late = state.recent(nodes, windows)
    if size is None:
        return late
    learnt = state.filter_state.usual + state.filter_state.sway - state.bank.usual[size] - state.bank.sway[size]
    return np.asarray(late + learnt[nodes])


def _with_known_lateness(state: StragglerState, found: _Suspect) -> StragglerState:
    """Make the slowdown the known lateness, and that filter's baseline the node's baseline."""
    node, bank = found.node, state.bank
    usual, sway, shift = state.filter_state.usual.copy(), state.filter_state.sway.copy(), state.shift.copy()
    if found.size is not None:
        usual[node], sway[node] = bank.usual[found.size, node], bank.sway[found.size, node]
    shift[node] += found.late
    evidence, usuals, sways = bank.evidence.copy(), bank.usual.copy(), bank.sway.copy()
    evidence[:, node], usuals[:, node], sways[:, node] = 0.0, usual[node], sway[node]
    run = state.run.copy()
    run[node] = 0.0
    return replace(
        state,
        filter_state=replace(state.filter_state, usual=usual, sway=sway),
        bank=replace(bank, evidence=evidence, usual=usuals, sway=sways),
        shift=shift,
        run=run,
    )


def _recovered(state: StragglerState, node: int, *, doubtful: bool) -> StragglerState:
    """Clear the lateness of a node.  A small slowdown may have been in part the node's baseline."""
    shift, usual2 = state.shift.copy(), state.filter_state.usual2.copy()
    usual2[node] += (UNSURE * shift[node]) ** 2 if doubtful else 0.0
    shift[node] = 0.0
    return replace(state, shift=shift, filter_state=replace(state.filter_state, usual2=usual2))


def _share(before: float, large: NDArray[np.bool_], observed: NDArray[np.bool_]) -> float:
    """Return the share of large windows, mostly pauses; slow faults are too few to matter."""
    rate = min(1.0, float(observed.sum()) / LARGE_MEMORY)
    return before if not rate else before + rate * (float(large.sum()) / float(observed.sum()) - before)
