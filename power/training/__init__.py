"""Training under a power budget: time against energy, swings, ramps and caps (docs/explanation/power/training.md).

`pipeline` builds the graph of an iteration, `frontier` finds its least energy at every time, `within` turns a point of
the frontier into clocks; `stagger` offsets jobs, `options_under` limits their rises, `clock_within` and `plan_within`
cap them.
"""

from power.training.caps import Cap, clock_within, plan_within
from power.training.operating_points import Choice, Computation, choices_of
from power.training.plans import Plan, at_full_clock, beside_straggler, under_mean, within
from power.training.ramps import Smoothed, options_under, smoothed
from power.training.schedules import Iteration, all_forward_all_backward, one_forward_one_backward, pipeline
from power.training.staggering import Staggered, Start, stagger, wait_s
from power.training.time_energy_frontier import Frontier, Point, frontier

__all__ = [
    "Cap",
    "Choice",
    "Computation",
    "Frontier",
    "Iteration",
    "Plan",
    "Point",
    "Smoothed",
    "Staggered",
    "Start",
    "all_forward_all_backward",
    "at_full_clock",
    "beside_straggler",
    "choices_of",
    "clock_within",
    "frontier",
    "one_forward_one_backward",
    "options_under",
    "pipeline",
    "plan_within",
    "smoothed",
    "stagger",
    "under_mean",
    "wait_s",
    "within",
]
