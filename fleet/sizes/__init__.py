"""Request sizes: histograms over input and output tokens, for the planner and the replay.

`SizeBuckets` (`histogram`) is the histogram.  A request states it directly, as a preset or as a trace (`sources`).
"""
