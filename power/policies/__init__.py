"""Policies: rules that turn the observation of a row into clocks, routing and admission limits.  Use `policy_named`."""

from power.policies.interface import Policy
from power.policies.registry import OWN_ROUTER, POLICY_NAMES, policy_named

__all__ = ["OWN_ROUTER", "POLICY_NAMES", "Policy", "policy_named"]
