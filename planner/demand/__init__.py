"""Demand from live metrics: rates, request sizes and latencies of one window, from the series that servers export.

`profiles` names the series of each server, `windows.read_window` reads one window of them, `density` estimates a
distribution from a histogram's buckets, and `drift` compares observed with predicted latencies.
docs/explanation/planner/live-demand.md states the method and its errors.
"""
