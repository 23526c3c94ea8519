"""The work of a row: generated from a load profile and a mix, or replayed from traces
(docs/explanation/power/simulator.md).
"""

from power.workload.fitting import course, fitted, read_rates
from power.workload.generated import generated_work
from power.workload.jobs import split_servers, training_jobs
from power.workload.load_profile import Curve, Harmonic, Quantile, Shape, builtin_shape
from power.workload.request_classes import POLCA_MIX, Mix, RequestClass
from power.workload.sources import Sources, read_sources
from power.workload.trace_replay import Recorded, batching, traced_work
from power.workload.workload import Pool, TrainingJob, Work

__all__ = [
    "POLCA_MIX",
    "Curve",
    "Harmonic",
    "Mix",
    "Pool",
    "Quantile",
    "Recorded",
    "RequestClass",
    "Shape",
    "Sources",
    "TrainingJob",
    "Work",
    "batching",
    "builtin_shape",
    "course",
    "fitted",
    "generated_work",
    "read_rates",
    "read_sources",
    "split_servers",
    "traced_work",
    "training_jobs",
]
