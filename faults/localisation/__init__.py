"""Who of thousands is slow: a joint sparse fit over everything that can slow an edge.  docs/faults/localisation.md

localiser = Localiser(fabric, settings)
state = localiser.start()
state, verdicts = localiser.step(state, window)   # every window
"""

from faults.localisation.localiser import Localiser, LocaliserState
from faults.localisation.settings import LocaliserSettings

__all__ = ["Localiser", "LocaliserSettings", "LocaliserState"]
