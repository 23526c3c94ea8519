"""Measured profiles: benchmark results of any serving tool, and the throughput tables that follow from them."""

from planner.profiles.csvtext import own_csv
from planner.profiles.drafts import Given
from planner.profiles.imports import Format, Imported, read_points
from planner.profiles.points import Configuration, Latency, MeasuredPoint, Profiles
from planner.profiles.sizes import Basis, Cell
from planner.profiles.tables import MeasuredTable, MergedTable, merged, throughput_from_points

__all__ = [
    "Basis",
    "Cell",
    "Configuration",
    "Format",
    "Given",
    "Imported",
    "Latency",
    "MeasuredPoint",
    "MeasuredTable",
    "MergedTable",
    "Profiles",
    "merged",
    "own_csv",
    "read_points",
    "throughput_from_points",
]
