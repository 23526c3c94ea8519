"""A service that batches by itself, as those do whose traces are replayed: no policy makes it one request a server."""

from dataclasses import dataclass
from math import inf
from typing import Any

from power.levers import Setting
from power.policies.interface import Policy
from power.readings import Seen

LEAST_TOGETHER = 2  # from two on the router goes on, where no server is idle, to all that memory holds


@dataclass(frozen=True, slots=True)
class Batching:
    """A policy on such a service."""

    policy: Policy[Any]

    @property
    def name(self) -> str:
        """As the policy's."""
        return self.policy.name

    @property
    def command_delay_s(self) -> float:
        """As the policy's."""
        return self.policy.command_delay_s

    def start(self) -> tuple[bool, Any]:
        """As the policy, and not asked yet."""
        return False, self.policy.start()

    def decide(self, state: tuple[bool, Any], seen: Seen) -> tuple[tuple[bool, Any], Setting]:
        """As the policy, but for the least that goes together."""
        after, setting = self.policy.decide(state[1], seen)
        low, high, parked = setting.routing
        routing = setting.routing._replace(
            low_together=max(low, LEAST_TOGETHER), high_together=max(high, LEAST_TOGETHER), parked_share=parked
        )
        return (True, after), setting._replace(routing=routing)

    def calm_below_w(self, state: tuple[bool, Any], budget_w: float) -> float:
        """As the policy, once the routing has been asked for."""
        return self.policy.calm_below_w(state[1], budget_w) if state[0] else -inf
