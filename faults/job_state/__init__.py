"""The state of a live job: the newest data of ranks, nodes, pairs and groups, and since when each has not moved.

`JobState` takes observations; the hang and crash detectors read it.  Its size is bounded for any input.
"""

from faults.job_state.groups import GroupProgress
from faults.job_state.job_state import JobState, NodeSamples
from faults.job_state.pairs import PairTraffic
from faults.job_state.ranks import RankProgress

__all__ = ["GroupProgress", "JobState", "NodeSamples", "PairTraffic", "RankProgress"]
