"""Plans where the experts of a mixture-of-experts model lie: replica counts and a GPU slot for each copy.

`placement.pipeline.place` is the entry, from a `PlacementProblem` to a `Placement`.  Import it late: it loads compiled
code.
"""
