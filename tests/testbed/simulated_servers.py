"""Simulated servers in arrays: a command takes effect after a delay, late, or never.

Time and randomness are arguments: `advance` sets the time, the generator draws the faults.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np
from pydantic import Field

from deploy.node_agent.agent import DeviceState
from fleet.documents import Frozen, RuleError
from fleet.errors import UnknownNameError
from power.arrays import Bools, Floats, Ints
from power.controls import Clocks, NodeClocks, Phase
from power.guard import Duty, Servers
from power.guard.telemetry import BRAKE, EPOCH, PROMPT_CLOCK, TOKEN_CLOCK
from power.server_model import BLOOM_A100, ServerModel

REFUSED = "the driver returned an error"

Share = Annotated[float, Field(ge=0, le=1)]


class ActuatorFaults(Frozen):
    """What happens to a command, drawn for each command and server."""

    ignored_share: Share = 0.0  # accepted and never executed
    refused_share: Share = 0.0  # refused with an error
    late_share: Share = 0.0
    late_s: Annotated[float, Field(ge=0, le=3600)] = 30.0  # beyond the declared delay
    brake_ignored_share: Share = 0.0
    unresponsive: tuple[str, ...] = ()  # servers that never execute a command for clocks
    clock_step: Annotated[float, Field(ge=0, le=0.2)] = 0.0  # devices round down to steps of this


NO_FAULTS = ActuatorFaults()


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of one server as read back."""

    read_at_s: float
    token_clock: float
    prompt_clock: float
    braked: bool
    epoch: int  # driver loads; a reloaded driver lost every cap


class SimulatedActuator:
    """The servers of a row, or one server."""

    def __init__(
        self,
        names: Sequence[str],
        duties: Sequence[Duty],
        *,
        rng: np.random.Generator,
        delay_s: float = 1.0,
        brake_s: float = 1.0,
        faults: ActuatorFaults = NO_FAULTS,
    ) -> None:
        if len(names) != len(duties) or not names or len(set(names)) != len(names):
            raise RuleError([(("names",), f"must be unique, one for each of the {len(duties)} duties")])
        self.names = tuple(names)
        self.faults = faults
        self.now_s = 0.0
        self._delay_s, self._brake_s, self._rng = delay_s, brake_s, rng
        self._duty = np.array(duties, dtype=np.int64)
        self._index = {name: at for at, name in enumerate(names)}
        count = len(names)
        self._held = np.vstack([np.ones((2, count)), np.zeros(count), np.ones(count)])
        self._next = self._held.copy()  # in flight
        self._clocks_at_s = np.full(count, inf)
        self._brake_at_s = np.full(count, inf)
        self._read_at_s = np.zeros(count)
        self._silent = np.zeros(count, dtype=np.bool_)

    def advance(self, now_s: float) -> None:
        """Set the time: commands that are due take effect, and every reachable server reports its state."""
        self.now_s = now_s
        clocks, brake = self._clocks_at_s <= now_s, self._brake_at_s <= now_s
        if clocks.any():
            self._held[:BRAKE, clocks] = self._next[:BRAKE, clocks]
            self._clocks_at_s[clocks] = inf
        if brake.any():
            self._held[BRAKE, brake] = self._next[BRAKE, brake]
            self._brake_at_s[brake] = inf
        self._read_at_s[~self._silent] = now_s

    def set_clocks(self, servers: Sequence[str], clocks: Clocks) -> Mapping[str, str]:
        """Command these clocks; return the servers that refused, each with the reason."""
        chosen = self._chosen(servers)
        refused = self._drawn(len(chosen), self.faults.refused_share)
        obeying = ~refused & ~self._drawn(len(chosen), self.faults.ignored_share) & self._executing(chosen)
        late = self._drawn(len(chosen), self.faults.late_share)
        commanded = chosen[obeying]
        by_duty = np.array(
            (
                (clocks.low_token, clocks.high_token, clocks.training),
                (clocks.low_prompt, clocks.high_prompt, clocks.training),
            )
        )
        self._next[:BRAKE, commanded] = self._rounded(by_duty[:, self._duty[commanded]])
        self._clocks_at_s[commanded] = self.now_s + self._delay_s + self.faults.late_s * late[obeying]
        return {self.names[at]: REFUSED for at in chosen[refused].tolist()}

    def brake(self, servers: Sequence[str], *, on: bool) -> Mapping[str, str]:
        chosen = self._chosen(servers)
        commanded = chosen[~self._drawn(len(chosen), self.faults.brake_ignored_share) & ~self._silent[chosen]]
        self._next[BRAKE, commanded] = float(on)
        self._brake_at_s[commanded] = self.now_s + self._brake_s
        return {}

    def enforced(self) -> Mapping[str, ServerState]:
        """Return the last state that each server reported."""
        return {
            name: ServerState(
                read_at_s=float(self._read_at_s[at]),
                token_clock=float(self._held[TOKEN_CLOCK, at]),
                prompt_clock=float(self._held[PROMPT_CLOCK, at]),
                braked=bool(self._held[BRAKE, at]),
                epoch=int(self._held[EPOCH, at]),
            )
            for at, name in enumerate(self.names)
        }

    def servers(self) -> Servers:
        """Return the enforced states as arrays, in the order of the names."""
        return Servers(read_at_s=self._read_at_s.copy(), held=self._held.copy())

    def reload_driver(self, servers: Sequence[str]) -> None:
        """Drop the caps of these servers and the commands in flight; the brake has its own wire and stays."""
        chosen = self._chosen(servers)
        self._held[:BRAKE, chosen] = 1.0
        self._held[EPOCH, chosen] += 1
        self._clocks_at_s[chosen] = inf

    def set_silent(self, servers: Sequence[str], *, silent: bool) -> None:
        """Disconnect or reconnect servers; a disconnected server neither receives nor reports, and keeps its state."""
        self._silent[self._chosen(servers)] = silent

    def _chosen(self, servers: Sequence[str]) -> Ints:
        unknown = next((name for name in servers if name not in self._index), None)
        if unknown is not None:
            raise UnknownNameError(kind="server", name=unknown, known=self.names)
        return np.array([self._index[name] for name in servers], dtype=np.int64)

    def _executing(self, chosen: Ints) -> Bools:
        ignoring = np.array([self.names[at] in self.faults.unresponsive for at in chosen.tolist()], dtype=np.bool_)
        return np.logical_not(ignoring | self._silent[chosen])

    def _drawn(self, count: int, share: float) -> Bools:
        """Draw the servers that a fault hits; a share of 0 draws nothing."""
        return self._rng.random(count) < share if share else np.zeros(count, dtype=np.bool_)

    def _rounded(self, clocks: Floats) -> Floats:
        step = self.faults.clock_step
        # The margin keeps a clock that is already a step.
        return np.floor(clocks / step + 1e-9) * step if step else clocks


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
