"""Reads the demand of targets: from Prometheus, from metrics pages of engines, and from logs of requests.

`reader.DemandReader` reads all sources of one target for one window.  What the samples mean is decided in
`planner.demand`.
"""
