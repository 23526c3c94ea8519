"""Training under a power budget: time against energy, swings, ramps and caps (docs/explanation/power/training.md).

`schedules.pipeline` builds the graph of an iteration, `time_energy_frontier.frontier` finds its least energy at every
time, and `plans` turns a point of the frontier into clocks.  `staggering.stagger` offsets jobs,
`ramps.options_under` limits their rises, `staggering.clock_within` and `plans.plan_within` cap them.
"""
