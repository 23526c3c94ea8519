"""A node without hardware: one simulated server that draws the power of its model."""

from collections.abc import Callable

import numpy as np

from deploy.node_agent.device import DeviceState
from power.controls import Clocks, NodeClocks, Phase
from power.guard import Duty
from power.server_model import BLOOM_A100, ServerModel
from power.testing import ActuatorFaults, SimulatedActuator


class SimulatedDevice:
    """One server of the simulated actuator as the device of an agent."""

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
        """Raise OSError for a refusal, as a driver does."""
        self.actuator.advance(self._now_s())
        commanded = Clocks(high_token=clocks.token, high_prompt=clocks.prompt)
        refused = self.actuator.set_clocks([self._name], commanded)
        if refused:
            raise OSError(refused[self._name])

    def brake(self, *, on: bool) -> None:
        """Engage or release the brake."""
        self.actuator.advance(self._now_s())
        self.actuator.brake([self._name], on=on)

    def read(self) -> DeviceState:
        """Return the enforced clocks and their power."""
        self.actuator.advance(self._now_s())
        held = self.actuator.enforced()[self._name]
        clocks = NodeClocks(held.token_clock, held.prompt_clock)
        return DeviceState(self._power_w(clocks, braked=held.braked), clocks, held.braked, held.epoch, self.phase)

    def _power_w(self, clocks: NodeClocks, *, braked: bool) -> float:
        if braked:
            brake = self._model.brake_clock
            clocks = clocks.slower(NodeClocks(brake, brake))
        clock = clocks.token if self.phase is Phase.TOKEN else clocks.prompt
        # A training server draws the power of prompts.
        phase = Phase.PROMPT if self.phase is Phase.TRAINING else self.phase
        return self._model.watts(phase, clock)
