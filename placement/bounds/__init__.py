"""Proven lower bounds of the imbalance (`lower_bound`), and advice on more slots (`redundancy_advice`).

docs/explanation/placement/bounds.md has the proofs.
"""

from placement.bounds.lower_bound import lower_bound, redundancy_advice

__all__ = ["lower_bound", "redundancy_advice"]
