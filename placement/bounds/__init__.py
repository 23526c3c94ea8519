"""How even a placement can be at best, proven: `lower_bound`; and what more slots would do for it: `advice`."""

from placement.bounds.advice import Advice, Step, redundancy_advice
from placement.bounds.lower_bound import lower_bound

__all__ = ["Advice", "Step", "lower_bound", "redundancy_advice"]
