"""What is known of a live job: the newest of everything, and since when it has not moved.  Bounded, whatever comes."""

from faults.job_state.groups import GroupProgress, Pending
from faults.job_state.job_state import JobState
from faults.job_state.nodes import NodeSamples
from faults.job_state.pairs import PairTraffic
from faults.job_state.ranks import RankProgress
from faults.job_state.step_pace import Pace

__all__ = ["GroupSeen", "Ledger", "NodeSeen", "Pace", "PairSeen", "Pending", "RankSeen"]
