"""What is known of a live job: the newest of everything, and since when it has not moved.  Bounded, whatever comes."""

from faults.ledger.groups import GroupSeen, Pending
from faults.ledger.ledger import Ledger
from faults.ledger.nodes import NodeSeen
from faults.ledger.pace import Pace
from faults.ledger.pairs import PairSeen
from faults.ledger.ranks import RankSeen

__all__ = ["GroupSeen", "Ledger", "NodeSeen", "Pace", "PairSeen", "Pending", "RankSeen"]
