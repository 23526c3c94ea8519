"""Finds the slow NICs, nodes, leaves, cables and links of a large job by a joint sparse fit of all edges.

    detector = LocalisationDetector(fabric, settings)
    state = detector.start()
    state, diagnoses = detector.step(state, window)  # for every window

Formulas: docs/explanation/faults/localisation.md
"""

from faults.localisation.detector import LocalisationDetector, LocalisationState
from faults.localisation.settings import LocaliserSettings

__all__ = ["LocalisationDetector", "LocalisationState", "LocaliserSettings"]
