"""Who computes longer than usual, among thousands, by the time between collectives.  docs/faults/stragglers.md

stragglers = Stragglers(Roles(stage, replica))   # or Stragglers(8): all alike
state = stragglers.start()
state, verdicts = stragglers.step(state, gaps_s, now_s)   # every window
"""

from faults.stragglers.settings import StragglerSettings
from faults.stragglers.stragglers import Stragglers, StragglerState
from faults.stragglers.usual import Roles

__all__ = ["Roles", "StragglerSettings", "StragglerState", "Stragglers"]
