"""Power and speed by board, model, batch, phase and clock, fitted on measured tables (docs/power/phases.md).

`fit_curves` makes the document of curves from tables that `read_table` has read.
"""

from power.measured_models.document import PowerShares, builtin_curves, builtin_shares

__all__ = ["PowerShares", "builtin_curves", "builtin_shares"]
