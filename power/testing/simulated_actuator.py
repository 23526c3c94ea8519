"""An actuator that keeps its servers in arrays: orders come into force after a delay, or late, or never.

It obeys the port `CapActuator`, so that whatever drives real servers can be tried on it.  Time and randomness are
given: `advance` says what time it is, the generator draws the faults.
"""

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from fleet.documents import RuleError
from fleet.errors import UnknownNameError
from power.actuators import Enforced
from power.controls import Clocks
from power.guard import Duty, Servers
from power.guard.telemetry import BRAKE, EPOCH, PROMPT_CLOCK, TOKEN_CLOCK, Bools, Floats, Ints
from power.testing.faults import NO_FAULTS, ActuatorFaults

REFUSED = "the driver answered with an error"


class SimulatedActuator:
    """The servers of a row, or one, behind the port."""

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
        self._next = self._held.copy()  # what is on its way
        self._clocks_at_s = np.full(count, inf)
        self._brake_at_s = np.full(count, inf)
        self._read_at_s = np.zeros(count)
        self._silent = np.zeros(count, dtype=np.bool_)

    @property
    def delay_s(self) -> float:
        """Declared."""
        return self._delay_s

    def advance(self, now_s: float) -> None:
        """It is this late now: what is due comes into force, and everybody who can speaks."""
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
        """Ask for these clocks."""
        chosen = self._chosen(servers)
        refused = self._drawn(len(chosen), self.faults.refused_share)
        obeying = ~refused & ~self._drawn(len(chosen), self.faults.ignored_share) & self._hearing(chosen)
        late = self._drawn(len(chosen), self.faults.late_share)
        told = chosen[obeying]
        by_duty = np.array(
            (
                (clocks.low_token, clocks.high_token, clocks.training),
                (clocks.low_prompt, clocks.high_prompt, clocks.training),
            )
        )
        self._next[:BRAKE, told] = self._rounded(by_duty[:, self._duty[told]])
        self._clocks_at_s[told] = self.now_s + self._delay_s + self.faults.late_s * late[obeying]
        return {self.names[at]: REFUSED for at in chosen[refused].tolist()}

    def brake(self, servers: Sequence[str], *, on: bool) -> Mapping[str, str]:
        """Engage or release the power brake."""
        chosen = self._chosen(servers)
        told = chosen[~self._drawn(len(chosen), self.faults.brake_ignored_share) & ~self._silent[chosen]]
        self._next[BRAKE, told] = float(on)
        self._brake_at_s[told] = self.now_s + self._brake_s
        return {}

    def enforced(self) -> Mapping[str, Enforced]:
        """The last that each server said of itself."""
        return {
            name: Enforced(
                read_at_s=float(self._read_at_s[at]),
                token_clock=float(self._held[TOKEN_CLOCK, at]),
                prompt_clock=float(self._held[PROMPT_CLOCK, at]),
                braked=bool(self._held[BRAKE, at]),
                epoch=int(self._held[EPOCH, at]),
            )
            for at, name in enumerate(self.names)
        }

    def servers(self) -> Servers:
        """The same as arrays, in the order of the names."""
        return Servers(read_at_s=self._read_at_s.copy(), held=self._held.copy())

    def reload_driver(self, servers: Sequence[str]) -> None:
        """Every cap of these is forgotten, and so is what was on its way; the brake is a wire and stays."""
        chosen = self._chosen(servers)
        self._held[:BRAKE, chosen] = 1.0
        self._held[EPOCH, chosen] += 1
        self._clocks_at_s[chosen] = inf

    def set_silent(self, servers: Sequence[str], *, silent: bool) -> None:
        """These are cut off, or back: they neither hear nor speak, and keep what they have."""
        self._silent[self._chosen(servers)] = silent

    def _chosen(self, servers: Sequence[str]) -> Ints:
        unknown = next((name for name in servers if name not in self._index), None)
        if unknown is not None:
            raise UnknownNameError(kind="server", name=unknown, known=self.names)
        return np.array([self._index[name] for name in servers], dtype=np.int64)

    def _hearing(self, chosen: Ints) -> Bools:
        deaf = np.array([self.names[at] in self.faults.deaf for at in chosen.tolist()], dtype=np.bool_)
        return np.logical_not(deaf | self._silent[chosen])

    def _drawn(self, count: int, share: float) -> Bools:
        """Whom a fault hits; nothing is drawn for one that cannot."""
        return self._rng.random(count) < share if share else np.zeros(count, dtype=np.bool_)

    def _rounded(self, clocks: Floats) -> Floats:
        step = self.faults.clock_step
        # A hair above, so that a clock that is a step already stays one.
        return np.floor(clocks / step + 1e-9) * step if step else clocks
