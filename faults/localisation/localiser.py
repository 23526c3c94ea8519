"""One window in, who is slow out: history, screening, joint fit, evidence over windows, names.

A pure state machine: the state goes in and a new one comes out.  docs/faults/localisation.md has the formulas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from faults.fabric import Fabric, Floats, Ints, Window
from faults.localisation import history as usual
from faults.localisation import links, suspicion
from faults.localisation.accusing import Trial, accused_hosts, accused_links, accused_switches
from faults.localisation.board import Board
from faults.localisation.entities import SWITCHES, Kind, entities
from faults.localisation.naming import Key, Named, merged, update
from faults.localisation.prices import Prices, board_of, candidates, counted, inflation
from faults.localisation.settings import LocaliserSettings
from faults.verdict import Verdict

CLIP = 5.0  # scales: one wild edge is not many


@dataclass(frozen=True, slots=True)
class LocaliserState:
    """Everything that is remembered between two windows."""

    history: usual.History
    suspicion: suspicion.Suspicion
    prices: Prices
    slow: Floats  # per entity: what was believed in the last window (log)
    links: Floats  # per pair, nats
    link_hits: np.ndarray
    link_since: Floats
    named: Mapping[Key, Named]


class Localiser:
    """Of one job on one fabric."""

    def __init__(self, fabric: Fabric, settings: LocaliserSettings | None = None) -> None:
        self.fabric = fabric
        self.settings = settings or LocaliserSettings()
        self.entities = entities(fabric, self.settings)
        kinds = len(self.settings.feels)
        self._of_kind = usual.samples(fabric.traffic, kinds)
        self._feels = np.asarray(self.settings.feels)[fabric.traffic]
        switch = np.isin(self.entities.kind, [int(kind) for kind in SWITCHES])
        self._misfit = np.where(switch, self.settings.switch_misfit, self.settings.host_misfit)
        self.pair_ends = _pair_ends(fabric, self.entities.pair, self.entities.pairs)

    def start(self) -> LocaliserState:
        """Before the first window."""
        pairs = self.entities.pairs
        return LocaliserState(
            history=usual.start(len(self.fabric), self.settings),
            suspicion=suspicion.start(self.entities),
            prices=Prices(self.settings.congested, self.settings.odd, np.ones(len(Kind)), 0),
            slow=np.zeros(len(self.entities)),
            links=np.zeros(pairs),
            link_hits=np.zeros(pairs, np.uint32),
            link_since=np.full(pairs, np.nan),
            named=MappingProxyType({}),
        )

    def step(self, state: LocaliserState, window: Window) -> tuple[LocaliserState, tuple[Verdict, ...]]:
        """The state after this window, and the faults that are believed now."""
        slowdown = window.slowdown if window.foreign is None else np.where(window.foreign, np.nan, window.slowdown)
        known, reading = usual.read(state.history, slowdown, self.fabric.traffic, self._of_kind, self.settings)
        state = replace(state, history=known)
        board = self._board(state, reading, window.to_s - window.from_s)
        who, x, evidence, prices = self._fit(state, board)
        explained, soft = self._predict(board, x)
        suspects = suspicion.gather(state.suspicion, self.entities, who, x, evidence, reading.fresh, window.from_s)
        scale = np.hypot(reading.scale, soft)
        leftover = reading.residual - explained
        nats, speaks, slow = links.gather(
            state.links, self.entities.pair, leftover, scale, reading.tail, reading.fresh, self._feels, explained > 0.0
        )
        state = LocaliserState(
            history=usual.learn(
                known, reading, self.fabric.traffic, self.settings, self._doubtful(board, suspects, explained)
            ),
            suspicion=suspects,
            prices=counted(prices, self.entities, x, leftover, scale),
            slow=x,
            links=nats,
            link_hits=((state.link_hits << np.uint32(1)) | speaks).astype(np.uint32),
            link_since=np.where(nats > 0.0, np.where(state.links > 0.0, state.link_since, window.from_s), np.nan),
            named=state.named,
        )
        return self._name(
            state, Trial(board, explained, slow, window, young=known.age < 2 * self.settings.warm_windows)
        )

    def _board(self, state: LocaliserState, reading: usual.Reading, window_s: float) -> Board:
        return board_of(
            self.entities, self.settings, self._misfit, state.prices, reading,
            believed=state.slow, nats=state.suspicion.nats, link_nats=state.links, window_s=window_s,
        )  # fmt: skip

    def _fit(self, state: LocaliserState, board: Board) -> tuple[Ints, Floats, Floats, Prices]:
        from faults.localisation.kernel import screen, solve, typical  # noqa: PLC0415 - compiles

        score = np.empty(len(self.entities))
        screen(board, CLIP, score)
        prices = inflation(state.prices, self.entities, score)
        board = board._replace(weight=1.0 / prices.inflation[self.entities.kind] ** 2)
        who = candidates(self.entities, self.settings, prices, score, state.slow, state.suspicion.nats)
        starts = np.empty(who.size)
        typical(board, who, starts)
        kept = (starts >= board.least[0] / 2.0) | (state.slow[who] > 0.0)  # half of its edges must be slow at all
        who, starts = who[kept], starts[kept]
        x = np.zeros(len(self.entities))
        x[who] = state.slow[who]
        evidence = np.zeros(who.size)
        if who.size:
            solve(board, who, starts, x, evidence)
        return who.astype(np.int64), x, evidence, prices

    def _predict(self, board: Board, x: Floats) -> tuple[Floats, Floats]:
        from faults.localisation.kernel import predict  # noqa: PLC0415 - compiles

        explained, soft = np.zeros(len(self.fabric)), np.zeros(len(self.fabric))
        if x.any():
            predict(board, x, explained, soft)
        return explained, soft

    def _doubtful(self, board: Board, suspects: suspicion.Suspicion, explained: Floats) -> np.ndarray:
        """Edges of which nothing is to be learnt now: explained, or of someone suspected."""
        watched = (suspects.nats[self.entities.slot] > suspicion.SPAN).astype(float)
        doubted, _ = self._predict(board, watched)
        return (explained > 0.0) | (doubted > 0.0)

    def _name(self, state: LocaliserState, trial: Trial) -> tuple[LocaliserState, tuple[Verdict, ...]]:
        hosts, alive_hosts = accused_hosts(self.fabric, self.entities, self.settings, state, trial)
        switches, alive_switches = accused_switches(self.entities, self.settings, state, trial)
        pairs, alive_pairs = accused_links(self.pair_ends, self.settings, state, trial)
        named = update(
            state.named,
            merged([*hosts, *switches, *pairs]),
            frozenset(alive_hosts | alive_switches | alive_pairs),
            now_s=trial.window.to_s,
            forget=self.settings.forget,
        )
        after = replace(state, named=MappingProxyType(named))
        return after, tuple(one.verdict for one in named.values())


def _pair_ends(fabric: Fabric, pair: Ints, pairs: int) -> Ints:
    """(2, pairs): the nodes of each link."""
    ends = np.empty((2, pairs), np.int64)
    ends[0, pair] = fabric.node[fabric.source]
    ends[1, pair] = fabric.node[fabric.target]
    return ends
