"""The suspects that pass every test in this window: evidence, persistence, and the cost of the chance explanation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Scope
from faults.fabric import Fabric, Floats, Ints, Window
from faults.localisation.chance_model import price_of_chance
from faults.localisation.entities import Entities, Kind, Links
from faults.localisation.evidence import Suspicion, direction_of, outlasts, recent_hits, run_of_hits
from faults.localisation.history import History
from faults.localisation.priors import FaultRate, Prices, shared_nats
from faults.localisation.probe_confirmation import ProbeConfirmation, windows_slow
from faults.localisation.probes import KEPT, Probes
from faults.localisation.reporting import Finding, Key, Named, key_of
from faults.localisation.settings import LocaliserSettings
from faults.localisation.window_arrays import WindowArrays

REMEMBERED = 32  # windows whose support is kept
LONGER = 1.2  # times a hiccup: no noise of probes makes up that
MIN_SHARE = 0.8  # of the windows in which a faulty cable has support, or probes were slow throughout
MAX_NODES_OF_LEAF = 3  # nodes of one leaf that qualify in the same window: then the leaf is the cause


@dataclass(frozen=True, slots=True)
class LocaliserState:
    """The state of a fit between two windows."""

    history: History
    suspicion: Suspicion
    prices: Prices
    slow: Floats  # per entity: the result of the last window (log)
    links: Links
    observed: NDArray[np.uint32]  # per node: whether its own agent reported, newest window in the lowest bit
    unobserved: np.uint32  # whether no traffic was observed, likewise
    named: Mapping[Key, Named]
    probes: Probes
    rate: FaultRate


@dataclass(frozen=True, slots=True)
class Trial:
    arrays: WindowArrays
    explained: Floats  # per edge
    link_slow: Floats  # per pair
    window: Window
    young: bool  # the peers' spread still dominates
    confirmation: ProbeConfirmation | None  # None: no probes

    @property
    def window_s(self) -> float:
        return self.window.to_s - self.window.from_s


Found = tuple[list[Finding], set[Key]]


def _persists(hits: np.uint32, unobserved: np.uint32, settings: LocaliserSettings, trial: Trial) -> bool:
    wanted = settings.hits(trial.window_s)
    return recent_hits(hits, wanted + settings.spare_windows, unobserved) >= wanted


def _outlasts(hits: np.uint32, unobserved: np.uint32, settings: LocaliserSettings, trial: Trial, lasted: float) -> bool:
    """Return whether a probe-confirmed suspect is no hiccup, by its windows or by the duration of its slowness.

    A window between without support may separate two hiccups: then probes must have been as slow in nearly all windows.
    """
    wanted = settings.hits(trial.window_s)
    longer = lasted * trial.window_s >= LONGER * settings.hiccup_s
    if longer and recent_hits(hits, wanted - 1, unobserved) >= wanted - 1:
        return True
    through = longer and lasted >= MIN_SHARE * KEPT
    return outlasts(hits, unobserved, wanted, spare=settings.spare_windows if through else 0)


def _stretches(hits: np.uint32, unobserved: np.uint32, settings: LocaliserSettings, trial: Trial) -> bool:
    """Return whether the suspect had support whenever observed, one time fewer than required, over as long a time."""
    wanted = settings.hits(trial.window_s)
    count, windows = run_of_hits(hits, unobserved)
    return count >= wanted - 1 and windows >= wanted


def significant_hosts(
    fabric: Fabric, all_of: Entities, settings: LocaliserSettings, state: LocaliserState, trial: Trial
) -> Found:
    """Find nodes, by any of their NICs, and those that this window still supports."""
    count = all_of.of_kind[Kind.NODE].stop
    hosts = np.flatnonzero(state.slow[:count])
    bar = settings.node_bar(count, trial.window_s, young=trial.young)
    every_h = state.rate.every_h(settings.fault_every_h)
    price = settings.price(all_of.of_kind[Kind.LEAF].stop, trial.window_s, every_h=every_h)
    found: list[Finding] = []
    alive: set[Key] = set()
    leaves: list[set[int]] = []
    suspected = _suspected_leaves(all_of, state, settings.hits(trial.window_s))
    previous = {int(str(key[1]).removeprefix("leaf-")) for key in state.named if key[0] is Scope.LEAF}
    for entity in hosts:
        slot = int(all_of.slot[entity])
        kind = Kind(int(all_of.kind[entity]))
        which = int(all_of.which[entity])
        node = which if kind is Kind.NODE else int(fabric.node[which])
        nats = float(state.suspicion.nats[slot])
        finding = Finding(
            kind=kind, which=node, peer=-1, slowdown=float(state.slow[entity]), nats=nats - price, edges=0,
            since_s=float(state.suspicion.since[slot]),
        )  # fmt: skip
        alive.add(key_of(finding))
        hits = state.suspicion.hits[slot]
        probes = (
            None
            if trial.confirmation is None or nats < bar / 2.0
            else trial.confirmation.at(all_of, int(entity), finding.slowdown)
        )
        confirms = probes is not None and probes.confirms
        lasts = _persists(hits, state.unobserved, settings, trial)
        if confirms:
            lasts |= _outlasts(hits, state.unobserved, settings, trial, probes.lasted if probes else 0.0)
        more = min(probes.nats, bar / 2.0) if probes is not None and confirms else 0.0
        if nats + more < bar or not lasts or (probes is not None and probes.clears):
            continue
        chance, edges = price_of_chance(
            fabric, all_of, trial.arrays, trial.explained, int(entity), float(state.slow[entity]),
            odd=state.prices.odd_edge, cable=state.prices.cable, congested_slowdown=state.prices.congested_slowdown,
            windows=1 if trial.young else recent_hits(hits, settings.hits(trial.window_s), state.unobserved),
        )  # fmt: skip
        shared = shared_nats(all_of, trial.arrays, state.prices, int(entity), finding.slowdown)
        if min(chance, shared) + more < bar:
            continue
        direction = kind if kind is Kind.NODE else direction_of(all_of, state.suspicion, slot)
        if probes is not None and confirms and kind is not Kind.NODE:
            direction = probes.direction
        ports = np.flatnonzero(fabric.node == node) if kind is Kind.NODE else [which]
        behind = {int(fabric.leaf[port]) for port in ports}
        own = _own(hits, state, node, settings, trial, quick=confirms, lasted=probes.lasted if probes else 0.0)
        sure = own and (probes is None or confirms)
        isolate = bool(sure and hits & 1 and not behind & suspected)
        if kind is not Kind.NODE and not isolate and behind & previous:
            continue
        found.append(replace(finding, kind=direction, edges=edges, isolate=isolate))
        leaves.append(behind)
    return _without_shared_leaves(found, leaves), alive


def _own(
    hits: np.uint32,
    state: LocaliserState,
    node: int,
    settings: LocaliserSettings,
    trial: Trial,
    *,
    quick: bool,
    lasted: float,
) -> bool:
    """Return whether the agent of a node reported in its supporting windows."""
    mine = hits & state.observed[node]
    slow = _persists(mine, state.unobserved, settings, trial)
    return slow or (quick and _outlasts(mine, state.unobserved, settings, trial, lasted))


def _suspected_leaves(all_of: Entities, state: LocaliserState, windows: int) -> set[int]:
    """Return the leaves that are slow, or were recently: their nodes' edges prove nothing of the nodes."""
    of = all_of.of_kind[Kind.LEAF]
    recent = (state.suspicion.hits[all_of.slot[of]] & np.uint32((1 << 2 * windows) - 1)) > 0
    return {int(which) for which in all_of.which[of][recent | (state.slow[of] > 0.0)]}


def _without_shared_leaves(found: list[Finding], leaves: list[set[int]]) -> list[Finding]:
    """Leave out findings whose leaf has too many others."""
    nodes: dict[int, set[int]] = {}
    for finding, of in zip(found, leaves, strict=True):
        for leaf in of:
            nodes.setdefault(leaf, set()).add(finding.which)
    shared = {leaf for leaf, inside in nodes.items() if leaf >= 0 and len(inside) > MAX_NODES_OF_LEAF}
    return [finding for finding, of in zip(found, leaves, strict=True) if not of & shared]


def significant_switches(all_of: Entities, settings: LocaliserSettings, state: LocaliserState, trial: Trial) -> Found:
    """Find leaves at once, and cables after they were slow for `lasting_s`."""
    leaves = all_of.of_kind[Kind.LEAF]
    bar = settings.node_bar(leaves.stop - leaves.start, trial.window_s, young=trial.young)
    found: list[Finding] = []
    alive: set[Key] = set()
    chosen = leaves.start + np.flatnonzero(state.slow[leaves.start :])
    old = trial.window.to_s - state.suspicion.since[all_of.slot[chosen]] >= settings.lasting_s
    for entity in chosen[(all_of.kind[chosen] == Kind.LEAF) | old]:
        slot = int(all_of.slot[entity])
        kind = Kind(int(all_of.kind[entity]))
        nats, since_s = float(state.suspicion.nats[slot]), float(state.suspicion.since[slot])
        finding = Finding(
            kind=kind, which=int(all_of.which[entity]), peer=-1, slowdown=float(state.slow[entity]), nats=nats,
            edges=int(all_of.edges_of(int(entity)).size), since_s=since_s,
        )  # fmt: skip
        alive.add(key_of(finding))
        if kind is Kind.LEAF:
            sure = shared_nats(all_of, trial.arrays, state.prices, int(entity), finding.slowdown) >= bar
        else:
            windows = min(REMEMBERED, int(settings.lasting_s / trial.window_s))
            sure = recent_hits(state.suspicion.hits[slot], windows) >= MIN_SHARE * windows
        if nats >= bar and sure and _persists(state.suspicion.hits[slot], state.unobserved, settings, trial):
            found.append(finding)
    return found, alive


def significant_links(
    ends: Ints, all_of: Entities, settings: LocaliserSettings, state: LocaliserState, trial: Trial
) -> Found:
    """Find pairs of nodes, one way: of both directions the one with more evidence."""
    links, back = state.links, all_of.pairs.back
    bar = settings.link_bar(links.nats.size, trial.window_s, young=trial.young)
    price = settings.price(links.nats.size, trial.window_s, every_h=state.rate.every_h(settings.fault_every_h))
    found: list[Finding] = []
    alive: set[Key] = set()
    for pair in np.flatnonzero(links.nats >= bar / 2.0):
        if (
            not links.hits[pair] & 1
            or trial.link_slow[pair] <= 0.0
            or (back[pair] >= 0 and links.nats[back[pair]] > links.nats[pair])
        ):
            continue
        finding = Finding(
            kind=None, which=int(ends[0, pair]), peer=int(ends[1, pair]), slowdown=float(trial.link_slow[pair]),
            nats=float(links.nats[pair]) - price, edges=1, since_s=float(links.since[pair]),
        )  # fmt: skip
        alive.add(key_of(finding))
        hits, unobserved = links.hits[pair], links.unobserved[pair]
        lasts = _persists(hits, unobserved, settings, trial) or _stretches(hits, unobserved, settings, trial)
        if links.probed[pair] > 0.0:
            lasted = (
                windows_slow([last[[pair]] for last in trial.confirmation.probes.last]) if trial.confirmation else 0.0
            )
            lasts |= _outlasts(hits, unobserved, settings, trial, lasted)
        if links.nats[pair] >= bar and lasts:
            found.append(finding)
    return found, alive
