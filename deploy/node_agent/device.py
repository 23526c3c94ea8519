"""What an agent needs of its node's GPUs, and the same without any.  `deploy.node_agent.gpu.node` has the real ones."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from power.controls import Clocks, Phase
from power.guard import Duty, NodeClocks
from power.server_model import BLOOM_A100, ServerModel
from power.testing import ActuatorFaults, SimulatedActuator


class DeviceState(NamedTuple):
    """One look at the node."""

    power_w: float
    clocks: NodeClocks  # enforced, not asked
    braked: bool
    epoch: int
    phase: Phase
    age_s: float = 0.0


class Device(Protocol):
    """All GPUs of one node.  No call waits for its effect; any may raise OSError."""

    def set_clocks(self, clocks: NodeClocks) -> None:
        """Ask the driver."""

    def brake(self, *, on: bool) -> None:
        """Pull the wire, or let it go."""

    def read(self) -> DeviceState:
        """Ask what holds."""


class SimulatedDevice:
    """A node of the simulated actuator, drawing what its model draws in the phase that it is in."""

    def __init__(
        self,
        *,
        name: str,
        now_s: Callable[[], float],
        rng: np.random.Generator,
        model: ServerModel = BLOOM_A100,
        phase: Phase = Phase.TOKEN,
        delay_s: float = 0.01,
        brake_s: float = 0.01,
        faults: ActuatorFaults | None = None,
    ) -> None:
        self.phase = phase
        self.actuator = SimulatedActuator(
            [name], [Duty.HIGH], rng=rng, delay_s=delay_s, brake_s=brake_s, faults=faults or ActuatorFaults()
        )
        self._now_s, self._model, self._name = now_s, model, name

    def set_clocks(self, clocks: NodeClocks) -> None:
        """Refusals come as OSError, as a driver's would."""
        self.actuator.advance(self._now_s())
        asked = Clocks(high_token=clocks.token, high_prompt=clocks.prompt)
        refused = self.actuator.set_clocks([self._name], asked)
        if refused:
            raise OSError(refused[self._name])

    def brake(self, *, on: bool) -> None:
        """By wire."""
        self.actuator.advance(self._now_s())
        self.actuator.brake([self._name], on=on)

    def read(self) -> DeviceState:
        """What holds, and what that draws."""
        self.actuator.advance(self._now_s())
        held = self.actuator.enforced()[self._name]
        clocks = NodeClocks(held.token_clock, held.prompt_clock)
        return DeviceState(self._power_w(clocks, braked=held.braked), clocks, held.braked, held.epoch, self.phase)

    def _power_w(self, clocks: NodeClocks, *, braked: bool) -> float:
        if braked:
            brake = self._model.brake_clock
            clocks = clocks.slower(NodeClocks(brake, brake))
        clock = clocks.token if self.phase is Phase.TOKEN else clocks.prompt
        # A server that trains computes as one that reads prompts.
        phase = Phase.PROMPT if self.phase is Phase.TRAINING else self.phase
        return self._model.watts(phase, clock)
