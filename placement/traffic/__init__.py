"""Tokens sent between nodes: how many are expected, and the placement that sends fewest under a ceiling."""

from placement.tokens import TokenTrace
from placement.traffic.expected import remote_nodes, traffic_cost
from placement.traffic.modelled import Routing, modelled_trace, residual
from placement.traffic.search import less_traffic

__all__ = ["Routing", "TokenTrace", "less_traffic", "modelled_trace", "remote_nodes", "residual", "traffic_cost"]
