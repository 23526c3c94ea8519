"""Traffic between nodes: its expected value, and `minimise_traffic` under a ceiling on the imbalance.

docs/explanation/placement/traffic.md has the formulas and the steps of the method.
"""

from placement.token_trace import TokenTrace
from placement.traffic.expected import remote_nodes, traffic_cost
from placement.traffic.search import minimise_traffic
from placement.traffic.synthetic_trace import Routing, generate_trace, residual

__all__ = ["Routing", "TokenTrace", "generate_trace", "minimise_traffic", "remote_nodes", "residual", "traffic_cost"]
