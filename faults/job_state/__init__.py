"""What is known of a live job: the newest of everything, and since when it has not moved.  Bounded, whatever comes."""

from faults.job_state.groups import GroupSeen, Pending
from faults.job_state.ledger import Ledger
from faults.job_state.nodes import NodeSeen
from faults.job_state.pairs import PairSeen
from faults.job_state.ranks import RankSeen
from faults.job_state.step_pace import Pace

__all__ = ["GroupSeen", "Ledger", "NodeSeen", "Pace", "PairSeen", "Pending", "RankSeen"]
