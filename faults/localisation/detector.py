"""The localisation of a large job's slow network: the fit of its traffic, and beside it the fit of probes alone."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis
from faults.fabric import Fabric, Window
from faults.localisation import probes as probing
from faults.localisation.entities import Kind
from faults.localisation.localiser import Localiser, LocaliserState
from faults.localisation.probe_fit import ProbeFit, fabric_of_pairs, settings_of_pairs
from faults.localisation.settings import LocaliserSettings


@dataclass(frozen=True, slots=True)
class LocalisationState:
    """The state between two windows."""

    traffic: LocaliserState
    probes: LocaliserState | None = None  # None before the first probe


class LocalisationDetector:
    """The localisation of one job on one fabric."""

    def __init__(self, fabric: Fabric, settings: LocaliserSettings | None = None) -> None:
        self.traffic_fit = Localiser(fabric, settings)

    @cached_property
    def _probe_fit(self) -> Localiser:
        """Create the fit when the first probe arrives."""
        of = self.traffic_fit
        pairs = fabric_of_pairs(of.fabric, of.entities.pair, of.first_edge.size)
        return Localiser(pairs, settings_of_pairs(of.settings))

    def start(self) -> LocalisationState:
        """Return the state before the first window."""
        return LocalisationState(self.traffic_fit.start())

    def step(self, state: LocalisationState, window: Window) -> tuple[LocalisationState, tuple[Diagnosis, ...]]:
        """Return the state after this window, and the active diagnoses."""
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
        """Return, per pair, whether a slow host or leaf lies on its path."""
        all_of = self._probe_fit.entities
        explained = np.zeros(all_of.pair.size, bool)
        for entity in np.flatnonzero(probes.slow[: all_of.of_kind[Kind.UP].start]):
            explained[all_of.edges_of(int(entity))] = True
        return explained
