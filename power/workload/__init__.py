"""The work of a row: generated from a load profile and a mix, or replayed from traces
(docs/explanation/power/simulator.md).
"""

from power.workload.fitting import fitted, read_rates
from power.workload.jobs import training_jobs
from power.workload.request_classes import POLCA_MIX
from power.workload.sources import Sources, read_sources
from power.workload.trace_replay import Recorded, batching
from power.workload.workload import TrainingJob, Work

__all__ = [
    "POLCA_MIX",
    "Recorded",
    "Sources",
    "TrainingJob",
    "Work",
    "batching",
    "fitted",
    "read_rates",
    "read_sources",
    "training_jobs",
]
