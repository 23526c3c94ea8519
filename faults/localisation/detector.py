"""The localisation of a large job's slow network: the fit of its traffic, and beside it the fit of probes alone.

The fit of probes is the joint fit on pairs of NICs instead of edges.  Probes continue while the job stands (a
checkpoint) and on paths that the job has not used yet.  A probe has no acknowledgements, so nothing leaks, and its
cables are unknown, so a busy cable makes an outlier edge.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis
from faults.fabric import NOWHERE, Fabric, Traffic, Window
from faults.localisation import probes as probing
from faults.localisation.entities import Kind, ends_of_pairs
from faults.localisation.localiser import Localiser
from faults.localisation.reporting import ProbeFit
from faults.localisation.settings import LocaliserSettings
from faults.localisation.significance import LocaliserState

PROBE_SPREAD: Final = 0.02  # log, first guess: pairs of NICs differ less than flows


@dataclass(frozen=True, slots=True)
class LocalisationState:
    traffic: LocaliserState
    probes: LocaliserState | None = None  # None before the first probe


class LocalisationDetector:
    """The localisation of one job on one fabric."""

    def __init__(self, fabric: Fabric, settings: LocaliserSettings | None = None) -> None:
        self.traffic_fit = Localiser(fabric, settings)

    @cached_property
    def _probe_fit(self) -> Localiser:
        """Create the fit of one edge per pair of NICs when the first probe arrives."""
        of = self.traffic_fit
        source, target = ends_of_pairs(of.fabric, of.entities.pair, of.first_edge.size)
        nowhere, ring = (np.full(source.size, value) for value in (NOWHERE, int(Traffic.RING)))
        pairs = Fabric(source, target, ring, nowhere, nowhere, of.fabric.node, of.fabric.leaf)
        return Localiser(pairs, of.settings.model_copy(update={"leak": 0.0, "spread": PROBE_SPREAD}))

    def start(self) -> LocalisationState:
        return LocalisationState(self.traffic_fit.start())

    def step(self, state: LocalisationState, window: Window) -> tuple[LocalisationState, tuple[Diagnosis, ...]]:
        probes = self._step_probes(state.probes, window)
        found = None if probes is None else ProbeFit(probes.named, self._explained(probes))
        traffic, diagnoses = self.traffic_fit.step(state.traffic, window, found)
        return LocalisationState(traffic, probes), diagnoses

    def _step_probes(self, before: LocaliserState | None, window: Window) -> LocaliserState | None:
        pairs = self.traffic_fit.first_edge
        slowdown = probing.per_pair(window, pairs)
        if before is None and slowdown is None:
            return None
        missing = np.full(pairs.size, np.nan)
        of_pairs = Window(window.from_s, window.to_s, missing if slowdown is None else slowdown)
        return self._probe_fit.step(self._probe_fit.start() if before is None else before, of_pairs)[0]

    def _explained(self, probes: LocaliserState) -> NDArray[np.bool_]:
        all_of = self._probe_fit.entities
        explained = np.zeros(all_of.pair.size, bool)
        for entity in np.flatnonzero(probes.slow[: all_of.of_kind[Kind.UP].start]):
            explained[all_of.edges_of(int(entity))] = True
        return explained
