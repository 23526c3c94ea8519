"""One window in, who is slow out: history, screening, joint fit, evidence over windows, names.

A pure state machine: the state goes in and a new one comes out.  docs/faults/localisation.md has the formulas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Fabric, Floats, Ints, Window
from faults.localisation import history as usual
from faults.localisation import suspicion
from faults.localisation.accusing import Trial, accused_hosts, accused_links, accused_switches
from faults.localisation.board import Board
from faults.localisation.coincidence import rests_on_one_pair
from faults.localisation.entities import Indices, Kind, Links, entities
from faults.localisation.naming import Key, Named, merged, update
from faults.localisation.prices import Prices, board_of, candidates, counted, inflation
from faults.localisation.settings import LocaliserSettings
from faults.verdict import Verdict

CLIP = 5.0  # scales: one wild edge is not many
_NOTHING = np.zeros(0, bool)


@dataclass(frozen=True, slots=True)
class LocaliserState:
    """Everything that is remembered between two windows."""

    history: usual.History
    suspicion: suspicion.Suspicion
    prices: Prices
    slow: Floats  # per entity: what was believed in the last window (log)
    links: Links
    heard: NDArray[np.uint32]  # per node: whether its own agent was heard, newest window in the lowest bit
    named: Mapping[Key, Named]


class _Reading(NamedTuple):
    """One window against history."""

    board: Board
    of: usual.Measures
    said: Floats
    fresh: Floats  # share of the variance that is new in each window
    heard: NDArray[np.bool_]  # per entity: any of its edges
    score: Floats  # per entity


class _Fit(NamedTuple):
    """What explains one window."""

    who: Ints  # candidates
    x: Floats  # per entity: log slowdown, 0: not chosen
    much: Floats  # per candidate: what it is, or would be
    evidence: Floats  # per candidate: nats by which it is needed, or would help


class Localiser:
    """Of one job on one fabric."""

    def __init__(self, fabric: Fabric, settings: LocaliserSettings | None = None) -> None:
        self.fabric = fabric
        self.settings = settings or LocaliserSettings()
        self.entities = entities(fabric, self.settings)
        self._of_kind = usual.samples(fabric.traffic, len(self.settings.feels))
        self._traffic = fabric.traffic.astype(np.int8)
        self._sender = fabric.node[fabric.source]
        switch = self.entities.kind >= Kind.LEAF
        self._misfit = np.where(switch, self.settings.switch_misfit, self.settings.host_misfit)
        self.pair_ends = _pair_ends(fabric, self.entities.pair, self.entities.pairs.back.size)

    def start(self) -> LocaliserState:
        """Before the first window."""
        pairs = self.entities.pairs.back.size
        return LocaliserState(
            history=usual.start(len(self.fabric), self.settings),
            suspicion=suspicion.start(self.entities),
            prices=Prices(self.settings.congested, self.settings.odd, np.ones(len(Kind)), 0),
            slow=np.zeros(len(self.entities)),
            links=Links(np.zeros(pairs), np.full(pairs, np.nan), np.zeros(pairs, np.uint32)),
            heard=np.zeros(int(self.fabric.node.max()) + 1, np.uint32),
            named=MappingProxyType({}),
        )

    def step(self, state: LocaliserState, window: Window) -> tuple[LocaliserState, tuple[Verdict, ...]]:
        """The state after this window, and the faults that are believed now."""
        if not np.isfinite(window.slowdown).any():
            return self._silent(state, window)
        known, reading = self._read(state, window)
        fit, prices = self._fit(state, reading)
        who, x = fit.who, fit.x
        board = reading.board._replace(weight=1.0 / prices.inflation[self.entities.kind] ** 2)
        reading = reading._replace(board=board)
        explained, _ = self._predict(board, x)
        suspects = suspicion.gather(
            state.suspicion, self.entities, who, x, fit.evidence, self._alone(reading, known, fit), reading.fresh,
            reading.heard, window.from_s,
        )  # fmt: skip
        links, link_slow, odd = self._links(state.links, known, reading, self._not_links(board, x), window.from_s)
        state = LocaliserState(
            history=self._learnt(known, reading, (explained > 0.0) | self._watched(board, suspects)),
            suspicion=suspects,
            prices=counted(prices, self.entities, x, odd),
            slow=x,
            links=links,
            heard=self._heard(state.heard, window),
            named=state.named,
        )
        return self._name(state, Trial(board, explained, link_slow, window, young=known.young(self.settings)))

    def _silent(self, state: LocaliserState, window: Window) -> tuple[LocaliserState, tuple[Verdict, ...]]:
        """Nobody talks: nothing is learnt, and what was named is not named for ever."""
        named = update(state.named, {}, frozenset(), now_s=window.to_s, forget=self.settings.forget)
        after = replace(state, named=MappingProxyType(named))
        return after, tuple(one.verdict for one in named.values())

    def _read(self, state: LocaliserState, window: Window) -> tuple[usual.History, _Reading]:
        from faults.localisation.sweep import measure  # noqa: PLC0415 - compiles

        known, level, loud = usual.measures(
            state.history, window.slowdown, window.foreign, self._of_kind, self.settings
        )
        board = board_of(
            self.entities, self.settings, self._misfit, state.prices,
            believed=state.slow, nats=state.suspicion.nats, window_s=window.to_s - window.from_s,
        )  # fmt: skip
        of = usual.Measures(
            level, known.noise**2 + usual.LEAST_SCALE**2, known.spread**2, loud, self.settings.spread_tail,
            state.prices.odd_edge, CLIP,
        )  # fmt: skip
        said, fresh, score = np.empty(len(self.fabric)), np.empty(len(self.fabric)), np.empty(len(self.entities))
        heard = np.empty(len(self.entities), bool)
        foreign = _NOTHING if window.foreign is None else window.foreign
        measure(
            window.slowdown, foreign, self._traffic, self.entities.pair, state.links.nats, of, known.usual, board,
            self.entities.full, said, fresh, heard, score,
        )  # fmt: skip
        return known, _Reading(board, of, said, fresh, heard, score)

    def _fit(self, state: LocaliserState, reading: _Reading) -> tuple[_Fit, Prices]:
        from faults.localisation.kernel import solve, typical  # noqa: PLC0415 - compiles

        prices = inflation(state.prices, self.entities, reading.score)
        board = reading.board._replace(weight=1.0 / prices.inflation[self.entities.kind] ** 2)
        who = candidates(self.entities, self.settings, prices, reading.score, state.slow, state.suspicion.nats)
        starts = np.empty(who.size)
        typical(board, who, starts)
        kept = (starts >= board.least[0] / 2.0) | (state.slow[who] > 0.0)  # half of its edges must be slow at all
        who, starts = who[kept], starts[kept]
        x = np.zeros(len(self.entities))
        x[who] = state.slow[who]
        evidence = np.zeros(who.size)
        if who.size:
            solve(board, who, starts, x, evidence)
        return _Fit(who.astype(np.int64), x, starts, evidence), prices

    def _alone(self, reading: _Reading, known: usual.History, fit: _Fit) -> Floats:
        from faults.localisation.sweep import alone  # noqa: PLC0415 - compiles

        nats = np.empty(fit.who.size)
        alone(self._traffic, reading.of, known.usual, reading.board, reading.said, fit.who, fit.much, nats)
        return nats

    def _predict(self, board: Board, x: Floats) -> tuple[Floats, Floats]:
        from faults.localisation.sweep import predict  # noqa: PLC0415 - compiles

        explained, soft = np.zeros(len(self.fabric)), np.zeros(len(self.fabric))
        predict(board, np.flatnonzero(x), x, explained, soft)
        return explained, soft

    def _links(
        self, old: Links, known: usual.History, reading: _Reading, explained: Floats, from_s: float
    ) -> tuple[Links, Floats, float]:
        from faults.localisation.links import gather  # noqa: PLC0415 - compiles

        pairs, odd = old.nats.size, np.empty(1)
        new = Links(np.empty(pairs), np.empty(pairs), np.empty(pairs, np.uint32))
        slow = np.empty(pairs)
        fresh = np.where(known.usual.windows < self.settings.warm_windows, 0.0, reading.fresh)
        gather(
            reading.board, self.entities.pairs, self.entities.pair, explained, fresh, slow, old, from_s, new, odd
        )  # fmt: skip
        return new, slow, float(odd[0])

    def _not_links(self, board: Board, x: Floats) -> Floats:
        """What is explained of each edge by anything that more than one pair of NICs accuses."""
        told = x.copy()
        for entity in np.flatnonzero(x[: self.entities.of_kind[Kind.NODE].stop]):
            if rests_on_one_pair(self.entities, board, int(entity), float(x[entity])):
                told[entity] = 0.0
        return self._predict(board, told)[0]

    def _watched(self, board: Board, suspects: suspicion.Suspicion) -> NDArray[np.bool_]:
        """Edges of someone suspected: nothing is to be learnt of them now."""
        watched = (suspects.nats[self.entities.slot] > suspicion.SPAN).astype(float)
        return np.asarray(self._predict(board, watched)[0] > 0.0)

    def _learnt(self, known: usual.History, reading: _Reading, doubtful: NDArray[np.bool_]) -> usual.History:
        from faults.localisation.sweep import learn  # noqa: PLC0415 - compiles

        new = usual.Usual(*(np.empty(len(self.fabric), np.float32) for _ in usual.Usual._fields))
        before = np.empty(len(self.fabric), np.float32)
        worth = np.where(known.age > 1, 1.0 / reading.of.loud, 0.0)  # whether the first was loud nobody can tell
        learn(
            self._traffic, (known.noise / known.spread) ** 2, worth, float(self.settings.warm_windows),
            float(self.settings.memory_windows), reading.board, reading.said, doubtful, known.usual, known.before, new,
            before,
        )  # fmt: skip
        return replace(known, usual=new, before=before)

    def _heard(self, before: NDArray[np.uint32], window: Window) -> NDArray[np.uint32]:
        told = np.zeros(before.size, np.uint32)
        told[self._sender[np.isfinite(window.slowdown)]] = 1
        return np.asarray((before << np.uint32(1)) | told)

    def _name(self, state: LocaliserState, trial: Trial) -> tuple[LocaliserState, tuple[Verdict, ...]]:
        hosts, alive_hosts = accused_hosts(self.fabric, self.entities, self.settings, state, trial)
        switches, alive_switches = accused_switches(self.entities, self.settings, state, trial)
        pairs, alive_pairs = accused_links(self.pair_ends, self.entities, self.settings, state, trial)
        named = update(
            state.named,
            merged([*hosts, *switches, *pairs]),
            frozenset(alive_hosts | alive_switches | alive_pairs),
            now_s=trial.window.to_s,
            forget=self.settings.forget,
        )
        after = replace(state, named=MappingProxyType(named))
        return after, tuple(one.verdict for one in named.values())


def _pair_ends(fabric: Fabric, pair: Indices, pairs: int) -> Ints:
    """(2, pairs): the nodes of each link."""
    ends = np.empty((2, pairs), np.int64)
    ends[0, pair] = fabric.node[fabric.source]
    ends[1, pair] = fabric.node[fabric.target]
    return ends
