"""One joint fit: history, screening, fit, evidence over windows, names.

A pure state machine: `step` takes a state and a window and returns the next state.  Formulas:
docs/explanation/faults/localisation.md
"""

from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis
from faults.fabric import Fabric, Floats, Ints, Window
from faults.localisation import evidence as evidence_of
from faults.localisation import history as usual
from faults.localisation import probes as probing
from faults.localisation import window_arrays as arrays_of
from faults.localisation.chance_model import rests_on_one_pair
from faults.localisation.entities import Elsewhere, Kind, Links, ends_of_pairs, entities, links_of
from faults.localisation.priors import (
    CONGESTED_SLOWDOWN,
    FaultRate,
    Prices,
    candidates,
    counted,
    inflation,
    window_arrays,
)
from faults.localisation.probe_confirmation import ProbeConfirmation
from faults.localisation.reporting import ProbeFit, merged, reported, update
from faults.localisation.settings import LocaliserSettings
from faults.localisation.significance import (
    LocaliserState,
    Trial,
    significant_hosts,
    significant_links,
    significant_switches,
)
from faults.localisation.window_arrays import WindowArrays

CLIP = 5.0  # scales: limits one outlier
_NOTHING = np.zeros(0, bool)
_NO_PROBES = probing.Reading(*np.empty((3, 0)))


class _Reading(NamedTuple):
    arrays: WindowArrays
    of: usual.Measures
    read: arrays_of.Read


class _Fit(NamedTuple):
    selected: Ints  # candidates
    x: Floats  # per entity: log slowdown, 0: not chosen
    amount: Floats  # per candidate: its slowdown, chosen or not
    evidence: Floats  # per candidate: nats by which it is needed, or would help


class _OfLinks(NamedTuple):
    slow: Floats
    traffic: Floats
    odd: float  # share of unexplained edges


class Localiser:
    def __init__(self, fabric: Fabric, settings: LocaliserSettings | None = None) -> None:
        self.fabric = fabric
        self.settings = settings or LocaliserSettings()
        self.entities = entities(fabric, self.settings)
        self._of_kind = usual.samples(fabric.traffic, len(self.settings.feels))
        self._traffic = fabric.traffic.astype(np.int8)
        self._sender = fabric.node[fabric.source]
        switch = self.entities.kind >= Kind.LEAF
        self._misfit = np.where(switch, self.settings.switch_misfit, self.settings.host_misfit)
        self._ways = probing.ways(
            fabric, self.entities.pair, self.entities.pairs.back.size, ports=self.settings.probe_ports
        )
        self._some_pairs = probing.samples(self.entities.pairs.back.size)
        self._edge_ways = arrays_of.ways(fabric, self.entities)
        self._buffers, self._columns = arrays_of.read(self._edge_ways), np.empty((7, len(fabric)))
        self.first_edge = self.entities.pairs.edge[self.entities.pairs.first[:-1]]
        self.pair_ends = fabric.node[ends_of_pairs(fabric, self.entities.pair, self.entities.pairs.back.size)]

    def start(self) -> LocaliserState:
        pairs = self.entities.pairs.back.size
        return LocaliserState(
            history=usual.start(len(self.fabric), self.settings, kinds=len(self.settings.feels)),
            suspicion=evidence_of.start(self.entities),
            prices=Prices(self.settings.congested, self.settings.odd, CONGESTED_SLOWDOWN, np.ones(len(Kind)), 0),
            slow=np.zeros(len(self.entities)),
            links=links_of(pairs),
            observed=np.zeros(int(self.fabric.node.max()) + 1, np.uint32),
            unobserved=np.uint32(0),
            named=MappingProxyType({}),
            probes=probing.start(pairs, self.settings),
            rate=FaultRate(),
        )

    def step(
        self, state: LocaliserState, window: Window, probe_fit: ProbeFit | None = None
    ) -> tuple[LocaliserState, tuple[Diagnosis, ...]]:
        """Return the state after this window, and the active diagnoses, with those of `probe_fit` alone."""
        talks, probes = (
            values is not None and bool(np.isfinite(values).any()) for values in (window.slowdown, window.probed)
        )
        if not talks and not probes:
            return self._silent(state, window, probe_fit)
        known, reading = self._read(state, window)
        fit, prices = self._fit(state, reading) if talks else (self._no_fit(), state.prices)
        x = fit.x
        arrays = reading.arrays._replace(weight=1.0 / prices.inflation[self.entities.kind] ** 2)
        reading = reading._replace(arrays=arrays)
        explained = self._predict(x, self._columns[4])
        suspects = self._suspects(state, known, reading, fit, window) if talks else evidence_of.silent(state.suspicion)
        doubtful = self._doubtful(x, suspects)
        probed = self._probed(state.probes, window)
        explained_pairs = np.zeros(self.first_edge.size, bool) if probe_fit is None else probe_fit.explained
        links, of_links = self._links(
            state, known, reading, self._elsewhere(arrays, x, explained), probed, explained_pairs, window.from_s
        )
        traffic = np.where(explained_pairs, np.nan, of_links.traffic)  # an explained slowdown is no congestion
        before, state = state, LocaliserState(
            history=self._updated_history(known, reading, doubtful) if talks else state.history,
            suspicion=suspects,
            prices=counted(prices, self.entities, x, of_links.odd) if talks else state.prices,
            slow=x,
            links=links,
            observed=self._observed(state.observed, window),
            unobserved=(state.unobserved << np.uint32(1)) | np.uint32(not talks),
            named=state.named,
            probes=state.probes
            if probed is None
            else self._updated_probes(state.probes, probed, traffic, doubtful, links),
            rate=state.rate.after(window.to_s - window.from_s),
        )  # fmt: skip
        confirmation = None
        if probed is not None:
            confirmation = ProbeConfirmation(self.fabric, self._ways, probed.reading, state.probes, self.settings)
        young = known.young(self.settings)
        trial = Trial(arrays, explained, of_links.slow, window, young=young, confirmation=confirmation)
        after, diagnoses = self._name(state, trial, probe_fit)
        return (after if talks else replace(after, slow=before.slow)), diagnoses

    def _silent(
        self, state: LocaliserState, window: Window, probe_fit: ProbeFit | None
    ) -> tuple[LocaliserState, tuple[Diagnosis, ...]]:
        """Advance by a window without observations: the history stays, and names expire."""
        named = update(state.named, {}, frozenset(), now_s=window.to_s, forget=self.settings.forget)
        after = replace(
            state,
            suspicion=evidence_of.silent(state.suspicion),
            observed=state.observed << np.uint32(1),
            unobserved=(state.unobserved << np.uint32(1)) | np.uint32(1),
            named=MappingProxyType(named),
        )
        return after, reported(named, probe_fit, min_confidence=self.settings.min_confidence)

    def _no_fit(self) -> _Fit:
        return _Fit(np.zeros(0, np.int64), np.zeros(len(self.entities)), np.zeros(0), np.zeros(0))

    def _read(self, state: LocaliserState, window: Window) -> tuple[usual.History, _Reading]:
        from faults.localisation.edge_kernels import measure  # noqa: PLC0415 - compiles

        known, level, outlying = usual.measures(
            state.history, window.slowdown, window.foreign, self._of_kind, self.settings
        )
        arrays = window_arrays(
            self.entities, self.settings, self._misfit, state.prices,
            previous=state.slow, nats=state.suspicion.nats, window_s=window.to_s - window.from_s,
            buffers=self._columns[:4],
        )  # fmt: skip
        of = usual.Measures(
            level, known.noise**2 + usual.MIN_SCALE**2, known.spread**2, outlying, self.settings.spread_tail,
            state.prices.odd_edge, CLIP,
        )  # fmt: skip
        foreign = _NOTHING if window.foreign is None else window.foreign
        measure(
            window.slowdown, foreign, self._traffic, self.entities.pair, state.links.nats, of, known.usual, arrays,
            self._edge_ways, self.entities.pairs.feels, self.entities.full, self._buffers,
        )  # fmt: skip
        return known, _Reading(arrays, of, self._buffers)

    def _fit(self, state: LocaliserState, reading: _Reading) -> tuple[_Fit, Prices]:
        from faults.localisation.kernel import solve, typical  # noqa: PLC0415 - compiles

        prices = inflation(state.prices, self.entities, reading.read.score)
        arrays = reading.arrays._replace(weight=1.0 / prices.inflation[self.entities.kind] ** 2)
        selected = candidates(
            self.entities, self.settings, prices, reading.read.score, state.slow, state.suspicion.nats
        )
        starts = np.empty(selected.size)
        typical(arrays, selected, starts)
        kept = (starts >= arrays.least[0] / 2.0) | (state.slow[selected] > 0.0)  # half of its edges must be slow at all
        selected, starts = selected[kept], starts[kept]
        x = np.zeros(len(self.entities))
        x[selected] = state.slow[selected]
        evidence = np.zeros(selected.size)
        if selected.size:
            solve(arrays, selected, starts, x, evidence)
        return _Fit(selected.astype(np.int64), x, starts, evidence), prices

    def _suspects(
        self, state: LocaliserState, known: usual.History, reading: _Reading, fit: _Fit, window: Window
    ) -> evidence_of.Suspicion:
        from faults.localisation.edge_kernels import alone  # noqa: PLC0415 - compiles

        nats, read = np.empty(fit.selected.size), reading.read
        alone(
            self._traffic, reading.of, known.usual, reading.arrays, read.measured, fit.selected, fit.amount, nats
        )  # fmt: skip
        return evidence_of.gather(
            state.suspicion, self.entities, fit.selected, fit.x, fit.evidence, nats, read.fresh, read.observed,
            window.from_s,
        )  # fmt: skip

    def _predict(self, x: Floats, most: Floats) -> Floats:
        """Write the prediction of each edge into an existing buffer."""
        most[:] = 0.0
        for entity in np.flatnonzero(x):
            edges = self.entities.edges_of(int(entity))
            share = self.entities.share[self.entities.first[entity] : self.entities.first[entity + 1]]
            most[edges] = np.maximum(most[edges], share * x[entity])
        return most

    def _probed(self, before: probing.Probes, window: Window) -> probing.Probed | None:
        measured = probing.per_pair(window, self.first_edge)
        if measured is None:
            return None
        return probing.Probed(measured, *probing.read(before.history, measured, self._some_pairs, self.settings))

    def _updated_probes(
        self, before: probing.Probes, probed: probing.Probed, traffic: Floats, doubtful: NDArray[np.bool_], links: Links
    ) -> probing.Probes:
        suspected = doubtful[self.first_edge] | (links.nats > evidence_of.SUSPECTED_NATS)
        return probing.learnt(before, probed, suspected, traffic, self._ways, self.settings)

    def _links(  # noqa: PLR0917 - arrays of one window
        self, state: LocaliserState, known: usual.History, reading: _Reading, elsewhere: Elsewhere,
        probed: probing.Probed | None, explained_pairs: NDArray[np.bool_], from_s: float,
    ) -> tuple[Links, _OfLinks]:  # fmt: skip
        from faults.localisation.links import gather  # noqa: PLC0415 - compiles

        pairs, odd = state.links.nats.size, np.empty(1)
        new = links_of(pairs)  # filled completely
        slow, traffic = np.empty(pairs), np.empty(pairs)
        readings = _NO_PROBES if probed is None else probed.reading
        most = self._ways.most(state.probes.congestion)
        gather(
            reading.arrays, self.entities.pairs, self.entities.pair, elsewhere, reading.read,
            known.usual.windows, float(self.settings.warm_windows), readings, most, explained_pairs, slow,
            state.links, from_s, new, odd, traffic,
        )  # fmt: skip
        return new, _OfLinks(slow, traffic, float(odd[0]))

    def _elsewhere(self, arrays: WindowArrays, x: Floats, explained: Floats) -> Elsewhere:
        """Return the explained slowdown of each edge by anything that more than one pair of NICs supports."""
        cables = self.entities.of_kind[Kind.UP].start
        hosts = np.flatnonzero(x[: self.entities.of_kind[Kind.NODE].stop])
        alone = [entity for entity in hosts if rests_on_one_pair(self.entities, arrays, int(entity), float(x[entity]))]
        if not x[cables:].any() and not alone:
            return Elsewhere(explained, explained)
        shared = x.copy()
        shared[alone] = 0.0
        by_all = self._predict(shared, self._columns[5])
        shared[cables:] = 0.0
        return Elsewhere(by_all, self._predict(shared, self._columns[6]))

    def _doubtful(self, x: Floats, suspects: evidence_of.Suspicion) -> NDArray[np.bool_]:
        """Return the edges of slow or suspected entities, which do not update the history now."""
        suspected, found = suspects.nats > evidence_of.SUSPECTED_NATS, np.zeros(len(self.fabric), bool)
        for entity in np.flatnonzero((x > 0.0) | suspected[self.entities.slot]):
            found[self.entities.edges_of(int(entity))] = True
        return found

    def _updated_history(self, known: usual.History, reading: _Reading, doubtful: NDArray[np.bool_]) -> usual.History:
        from faults.localisation.edge_kernels import learn  # noqa: PLC0415 - compiles

        new = usual.Usual(*(np.empty(len(self.fabric), np.float32) for _ in usual.Usual._fields))
        before = np.empty(len(self.fabric), np.float32)
        worth = np.where(known.age > 1, 1.0 / reading.of.outlying, 0.0)  # the scatter of the first window is unknown
        learn(
            self._traffic, (known.noise / known.spread) ** 2, worth, float(self.settings.warm_windows),
            float(self.settings.memory_windows), reading.arrays, reading.read.measured, doubtful, known.usual,
            known.before, new, before,
        )  # fmt: skip
        return replace(known, usual=new, before=before)

    def _observed(self, before: NDArray[np.uint32], window: Window) -> NDArray[np.uint32]:
        newest = np.zeros(before.size, np.uint32)
        newest[self._sender[np.isfinite(window.slowdown)]] = 1
        return np.asarray((before << np.uint32(1)) | newest)

    def _name(
        self, state: LocaliserState, trial: Trial, probe_fit: ProbeFit | None
    ) -> tuple[LocaliserState, tuple[Diagnosis, ...]]:
        hosts, alive_hosts = significant_hosts(self.fabric, self.entities, self.settings, state, trial)
        switches, alive_switches = significant_switches(self.entities, self.settings, state, trial)
        pairs, alive_pairs = significant_links(self.pair_ends, self.entities, self.settings, state, trial)
        named = update(
            state.named,
            merged([*hosts, *switches, *pairs]),
            frozenset(alive_hosts | alive_switches | alive_pairs),
            now_s=trial.window.to_s,
            forget=self.settings.forget,
        )
        diagnoses = reported(named, probe_fit, min_confidence=self.settings.min_confidence)
        return replace(state, named=MappingProxyType(named), rate=state.rate.after_diagnoses(diagnoses)), diagnoses
