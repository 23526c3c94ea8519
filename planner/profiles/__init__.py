"""Measured profiles: benchmark results of any serving tool, and the throughput tables computed from them.

`read_points` imports a file, `throughput_from_points` computes the table of a configuration, and `merged` combines it
with predicted rates.  docs/explanation/planner/profiles.md explains the method.
"""

from planner.profiles.csv_tables import own_csv
from planner.profiles.imports import Format, read_points
from planner.profiles.interpolation import Basis
from planner.profiles.points import Configuration, MeasuredPoint, Profiles
from planner.profiles.raw_points import Given
from planner.profiles.tables import merged, throughput_from_points

__all__ = [
    "Basis",
    "Configuration",
    "Format",
    "Given",
    "MeasuredPoint",
    "Profiles",
    "merged",
    "own_csv",
    "read_points",
    "throughput_from_points",
]
