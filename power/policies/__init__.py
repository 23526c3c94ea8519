"""Rules that turn what is seen of a row into clocks, routing and admission."""

from power.policies.interface import Policy
from power.policies.registry import OWN_ROUTER, POLICY_NAMES, policy_named

__all__ = ["OWN_ROUTER", "POLICY_NAMES", "Policy", "policy_named"]
