"""Rules that turn what is seen of a row into clocks, routing and admission."""

from power.policies.interface import Policy

__all__ = ["Policy"]
