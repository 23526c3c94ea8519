"""Who passes every test in this window: evidence, persistence, and that chance would be dearer than the fault."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Fabric, Floats, Ints, Window
from faults.localisation.board import Board
from faults.localisation.coincidence import price_of_chance
from faults.localisation.entities import Entities, Kind
from faults.localisation.naming import Accused, Key, key_of
from faults.localisation.prices import Prices, shared_nats
from faults.localisation.settings import LocaliserSettings
from faults.localisation.suspicion import Suspicion, direction_of, recent_hits

REMEMBERED = 32  # windows whose hits are kept
CROWD = 3  # nodes of one leaf that are accused in the same window: that is the leaf, however it was fitted


class Believed(Protocol):
    """What is remembered, as far as it is needed here."""

    @property
    def suspicion(self) -> Suspicion: ...
    @property
    def prices(self) -> Prices: ...
    @property
    def slow(self) -> Floats: ...
    @property
    def links(self) -> Floats: ...
    @property
    def link_hits(self) -> NDArray[np.uint32]: ...
    @property
    def link_since(self) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """One window as it was fitted."""

    board: Board
    explained: Floats  # per edge
    link_slow: Floats  # per pair
    window: Window
    young: bool  # the peers' spread still rules

    @property
    def window_s(self) -> float:
        return self.window.to_s - self.window.from_s


Found = tuple[list[Accused], set[Key]]


def _persists(hits: np.uint32, settings: LocaliserSettings, trial: Trial) -> bool:
    wanted = settings.hits(trial.window_s)
    return recent_hits(hits, wanted + settings.spare_windows) >= wanted


def accused_hosts(
    fabric: Fabric, all_of: Entities, settings: LocaliserSettings, state: Believed, trial: Trial
) -> Found:
    """Nodes, by any of their NICs, and those that this window still speaks for."""
    hosts = np.flatnonzero((all_of.kind <= Kind.NODE) & (state.slow > 0.0))
    bar = settings.node_bar(int((all_of.kind <= Kind.NODE).sum()), trial.window_s, young=trial.young)
    price = settings.price(int((all_of.kind <= Kind.LEAF).sum()), trial.window_s)
    found: list[Accused] = []
    alive: set[Key] = set()
    leaves: list[set[int]] = []
    for entity in hosts:
        slot = int(all_of.slot[entity])
        kind = Kind(int(all_of.kind[entity]))
        which = int(all_of.which[entity])
        node = which if kind is Kind.NODE else int(fabric.node[which])
        nats = float(state.suspicion.nats[slot])
        accused = Accused(
            kind=kind, which=node, peer=-1, slowdown=float(state.slow[entity]), nats=nats - price, edges=0,
            since_s=float(state.suspicion.since[slot]),
        )  # fmt: skip
        alive.add(key_of(accused))
        if nats < bar or not _persists(state.suspicion.hits[slot], settings, trial):
            continue
        chance, edges = price_of_chance(
            fabric, all_of, trial.board, trial.explained, int(entity), float(state.slow[entity]),
            odd=state.prices.odd_edge, cable=state.prices.cable,
        )  # fmt: skip
        if min(chance, shared_nats(all_of, trial.board, state.prices, int(entity), accused.slowdown)) >= bar:
            told = kind if kind is Kind.NODE else direction_of(all_of, state.suspicion, slot)
            found.append(_with(accused, kind=told, edges=edges))
            ports = np.flatnonzero(fabric.node == node) if kind is Kind.NODE else [which]
            leaves.append({int(fabric.leaf[port]) for port in ports})
    return _without_crowds(found, leaves), alive


def _with(accused: Accused, *, kind: Kind, edges: int) -> Accused:
    return Accused(
        kind=kind, which=accused.which, peer=accused.peer, slowdown=accused.slowdown, nats=accused.nats, edges=edges,
        since_s=accused.since_s,
    )  # fmt: skip


def _without_crowds(found: list[Accused], leaves: list[set[int]]) -> list[Accused]:
    """Leave out those whose leaf is shared by too many others."""
    nodes: dict[int, set[int]] = {}
    for accused, of in zip(found, leaves, strict=True):
        for leaf in of:
            nodes.setdefault(leaf, set()).add(accused.which)
    crowded = {leaf for leaf, inside in nodes.items() if leaf >= 0 and len(inside) > CROWD}
    return [accused for accused, of in zip(found, leaves, strict=True) if not of & crowded]


def accused_switches(all_of: Entities, settings: LocaliserSettings, state: Believed, trial: Trial) -> Found:
    """Leaves at once; cables when they have been slow for so long that it is no weather."""
    bar = settings.node_bar(int((all_of.kind == Kind.LEAF).sum()), trial.window_s, young=trial.young)
    found: list[Accused] = []
    alive: set[Key] = set()
    for entity in np.flatnonzero((all_of.kind >= Kind.LEAF) & (state.slow > 0.0)):
        slot = int(all_of.slot[entity])
        kind = Kind(int(all_of.kind[entity]))
        nats, since_s = float(state.suspicion.nats[slot]), float(state.suspicion.since[slot])
        accused = Accused(
            kind=kind, which=int(all_of.which[entity]), peer=-1, slowdown=float(state.slow[entity]), nats=nats,
            edges=int(all_of.edges_of(int(entity)).size), since_s=since_s,
        )  # fmt: skip
        alive.add(key_of(accused))
        if kind is Kind.LEAF:
            sure = shared_nats(all_of, trial.board, state.prices, int(entity), accused.slowdown) >= bar
        else:
            windows = min(REMEMBERED, int(settings.lasting_s / trial.window_s))
            always = recent_hits(state.suspicion.hits[slot], windows) == windows
            sure = always and trial.window.to_s - since_s >= settings.lasting_s
        if nats >= bar and sure and _persists(state.suspicion.hits[slot], settings, trial):
            found.append(accused)
    return found, alive


def accused_links(ends: Ints, settings: LocaliserSettings, state: Believed, trial: Trial) -> Found:
    """Pairs of nodes, one way."""
    bar = settings.link_bar(state.links.size, trial.window_s, young=trial.young)
    price = settings.price(state.links.size, trial.window_s)
    speaks = (state.link_hits & 1).astype(bool)
    found: list[Accused] = []
    alive: set[Key] = set()
    for pair in np.flatnonzero(speaks & (state.links >= bar / 2.0)):
        accused = Accused(
            kind=None, which=int(ends[0, pair]), peer=int(ends[1, pair]), slowdown=float(trial.link_slow[pair]),
            nats=float(state.links[pair]) - price, edges=1, since_s=float(state.link_since[pair]),
        )  # fmt: skip
        alive.add(key_of(accused))
        if state.links[pair] >= bar and _persists(state.link_hits[pair], settings, trial):
            found.append(accused)
    return found, alive
