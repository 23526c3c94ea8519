"""Power and speed by board, model, batch, phase and clock, fitted on measured tables
(docs/explanation/power/measured-models.md).

`read_table` reads tables; `fit_curves` fits the document of curves on them.
"""

from power.measured_models.document import PowerShares, builtin_curves, builtin_shares

__all__ = ["PowerShares", "builtin_curves", "builtin_shares"]
