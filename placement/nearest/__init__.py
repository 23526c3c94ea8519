"""Placements for engines that send a token to the nearest copy (placement.dispatch, rule `nearest`).

`balanced_nearest` plans for the rule.  `balanced_for_sglang` continues with the whole numbers that SGLang draws;
`engine_loads` and `engine_imbalance` compute these for any placement.
"""

from placement.nearest.sglang_model import Draws, balanced_for_sglang, engine_choices, engine_imbalance, engine_loads
from placement.nearest.solve import balanced_nearest

__all__ = ["Draws", "balanced_for_sglang", "balanced_nearest", "engine_choices", "engine_imbalance", "engine_loads"]
