"""Finds nodes that compute longer than usual, among thousands, by the time between collectives.

    stragglers = Stragglers(Roles(stage, replica))   # or Stragglers(8): all alike
    state = stragglers.start()
    state, diagnoses = stragglers.step(state, gaps_s, now_s)   # every window

Formulas: docs/explanation/faults/stragglers.md
"""

from faults.stragglers.peers import Roles
from faults.stragglers.settings import StragglerSettings
from faults.stragglers.stragglers import Stragglers, StragglerState

__all__ = ["Roles", "StragglerSettings", "StragglerState", "Stragglers"]
