"""Plans for engines that send a token to the nearest copy (placement.dispatch, rule `nearest`).

`balanced_nearest` plans against the rule; `evened_for_engine` goes on to the whole numbers that SGLang makes of it,
which `engine_loads` and `engine_imbalance` work out for any placement.
"""

from placement.nearest.sglang_model import Draws, balanced_for_sglang, engine_choices, engine_imbalance, engine_loads
from placement.nearest.solve import balanced_nearest

__all__ = ["Draws", "balanced_for_sglang", "balanced_nearest", "engine_choices", "engine_imbalance", "engine_loads"]
