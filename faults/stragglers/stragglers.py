"""Who computes longer than it used to and than its peers: a CUSUM per node (Page 1954).

    S_i(t) = max(0, S_i(t-1) + clip(z_i(t), -w, w) - k_i),   z = lateness beyond the usual / noise

k_i is half of what is looked for, in standard deviations, plus what is not known of the node's usual and what it may
wander by; that closes the trap of a short history, whose error is the same in every window and adds up.  The bar
follows from the wanted rate of false alarms.  One window counts little, since a pause is one window; so that a large
slowdown need not wait, a run of large windows names it too, once it is longer than pauses make by chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.stragglers import usual
from faults.stragglers.settings import StragglerSettings
from faults.stragglers.usual import Roles
from faults.verdict import FaultClass, Scope, Verdict

DOUBT = 0.25  # of the bar: from there on nothing is learnt of a node
PEERS_GUARD = 2.5  # standard errors more while only peers say what is usual: the oddest of thousands is 4 away
MOST_REFERENCE = 0.75  # standard deviations: with more, e^(2 k w), what a pause adds to the chance of an alarm, tells
LARGE_MEMORY = 1e6  # node-windows over which their share is known
EVIDENCE = ("compute-gap",)


@dataclass(frozen=True, slots=True)
class StragglerState:
    """Everything that is remembered between two windows."""

    usual: usual.Usual
    height: Floats  # of the CUSUM
    since_s: Floats
    count: Floats  # windows since
    total: Floats  # lateness in them
    run: Floats  # large windows in a row
    large_share: float  # of all windows
    heard: NDArray[np.bool_]  # in the last window
    quiet: Mapping[int, int]  # named nodes: for how many windows nothing spoke for it
    named: Mapping[int, Verdict]
    now_s: float | None


class Stragglers:
    """Of one job."""

    def __init__(self, nodes: int | Roles, settings: StragglerSettings | None = None) -> None:
        self.roles = Roles.alike(nodes) if isinstance(nodes, int) else nodes
        self.nodes = int(self.roles.stage.size)
        self.settings = settings or StragglerSettings()

    def start(self) -> StragglerState:
        """Before the first window."""
        zero = np.zeros(self.nodes)
        none: Mapping[int, int] = MappingProxyType({})
        return StragglerState(
            usual.start(self.nodes, self.settings), zero, np.full(self.nodes, np.nan), zero, zero, zero, 1e-3,
            np.zeros(self.nodes, np.bool_), none, MappingProxyType({}), None,
        )  # fmt: skip

    def step(
        self, state: StragglerState, gaps_s: Floats, now_s: float, *, window_s: float | None = None
    ) -> tuple[StragglerState, tuple[Verdict, ...]]:
        """One window on.  `gaps_s`: mean time to compute per node, NaN where not heard; the window ends at `now_s`."""
        if window_s is None:
            window_s = now_s - state.now_s if state.now_s is not None else now_s
        window_s = max(window_s, 1e-3)
        if not (np.isfinite(gaps_s) & (gaps_s > 0.0)).any():  # a job that stands tells nothing of who computes how long
            return replace(state, now_s=now_s), tuple(state.named[node] for node in sorted(state.named))
        known, said, of_replica = usual.late(state.usual, gaps_s, self.roles, self.settings)
        lateness = said - of_replica - known.usual
        heard = np.isfinite(lateness)
        wanted = max(float(np.log(self.settings.slowdown)) - self.settings.wander, 0.0) / known.noise
        reference = min(wanted / 2.0, MOST_REFERENCE)
        spread = usual.apart(known, self.roles, self.settings)
        unsure = usual.unsure(known, spread)
        guard = (self.settings.guard + PEERS_GUARD * (unsure / known.spread) ** 2) * unsure
        beyond = (lateness - guard - self.settings.wander) / known.noise
        score = np.clip(beyond, -self.settings.winsor, self.settings.winsor)
        large = beyond > self.settings.large
        risen = np.maximum(state.height + score - reference, 0.0)
        height = np.where(heard, risen, state.height)
        bar = self.settings.bar(reference, self.nodes, window_s)
        height = np.minimum(height, 2.0 * bar)
        up = height > 0.0
        fresh = up & ~(state.height > 0.0)
        lost = np.where(heard, lateness, 0.0)
        after = replace(
            state,
            usual=usual.learn(
                known,
                said,
                of_replica,
                height > DOUBT * bar,
                spread,
                most_windows=self.settings.memory_s / window_s,
            ),
            height=height,
            since_s=np.where(up, np.where(fresh, now_s - window_s, state.since_s), np.nan),
            count=np.where(up, np.where(fresh, 0.0, state.count) + heard, 0.0),
            total=np.where(up, np.where(fresh, 0.0, state.total) + lost, 0.0),
            run=np.where(heard, np.where(large, state.run + 1.0, 0.0), state.run),
            large_share=_share(state.large_share, large, heard),
            heard=heard,
            now_s=now_s,
        )
        run = self.settings.run(after.large_share, self.nodes, window_s)
        return self._name(after, bar, run, now_s)

    def _name(
        self, state: StragglerState, bar: float, run: int, now_s: float
    ) -> tuple[StragglerState, tuple[Verdict, ...]]:
        mean = state.total / np.maximum(state.count, 1.0)
        named, quiet = dict(state.named), dict(state.quiet)
        for node in np.flatnonzero((state.height >= bar) | (state.run >= run)).tolist():
            if self._own(state, mean, node):
                found = self._verdict(state, node, float(mean[node]), bar, now_s)
                old = named.get(node)
                kept = {} if old is None else {"detected_s": old.detected_s, "onset_s": old.onset_s}
                named[node] = found.model_copy(update=kept)
                quiet[node] = 0
        for node in list(named):
            if state.height[node] < bar / 2.0 and not state.run[node]:
                quiet[node] += 1
                if quiet[node] >= self.settings.forget_windows:
                    del named[node], quiet[node]
        after = replace(state, named=MappingProxyType(named), quiet=MappingProxyType(quiet))
        return after, tuple(named[node] for node in sorted(named))

    def _own(self, state: StragglerState, mean: Floats, node: int) -> bool:
        """Whether it is the node itself, and not all who compute on the same data.  Who is not heard cannot tell."""
        same: Ints = np.flatnonzero(self.roles.replica == self.roles.replica[node])
        others = same[same != node]
        if others.size < 2:
            return True
        heard = others[state.heard[others]]
        return heard.size >= 2 and float(np.median(mean[heard])) < self.settings.alike * float(mean[node])

    def _verdict(self, state: StragglerState, node: int, mean: float, bar: float, now_s: float) -> Verdict:
        odds = max(1.0, float(state.height[node] / bar))
        return Verdict(
            fault=FaultClass.NONCOMM_SLOW,
            scope=Scope.NODE,
            node=node,
            onset_s=float(state.since_s[node]),
            detected_s=now_s,
            isolate=True,
            confidence=round(1.0 - 0.5 * float(np.exp(1.0 - 3.0 * odds)), 4),
            reason=f"node {node} computes {100.0 * float(np.expm1(mean)):.1f} % longer than it and its peers do",
            evidence=EVIDENCE,
        )


def _share(before: float, large: NDArray[np.bool_], heard: NDArray[np.bool_]) -> float:
    """How often a node's window is large, pauses above all; slow faults are too few to tell."""
    rate = min(1.0, float(heard.sum()) / LARGE_MEMORY)
    return before if not rate else before + rate * (float(large.sum()) / float(heard.sum()) - before)
