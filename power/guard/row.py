"""The servers of a row for the guard: their worst-case power, and the clocks at which all of it fits.

    worst(server) = max(prompt_w(prompt clock), token_w(token clock, largest batch));  training: its own curve
    worst(row)    = sum over servers, each at the higher of its commanded and its enforced clocks

The worst-case clocks spare high priority: low priority and training slow down first, to the lowest clock, then high
priority.  One number gives the clocks of a class, the share `r` of the server's highest power: each phase has the clock
at which it draws `r` of that power.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fleet.documents import RuleError
from power.arrays import Floats, Ints
from power.controls import FULL_CLOCK, Clocks
from power.guard.telemetry import BRAKE, PROMPT_CLOCK, TOKEN_CLOCK
from power.server_model import Draw, ServerModel

HALVINGS = 30  # of the range in which the level is sought: far below any clock step


class Duty(IntEnum):
    """The purpose of a server."""

    LOW = 0  # serves low priority
    HIGH = 1
    TRAINING = 2


class _Curve(NamedTuple):
    """Watts of a server in a phase by its clock: floor + rise * clock^exponent, at the plug."""

    floor_w: float
    rise_w: float
    exponent: float

    def watts(self, clock: float) -> float:
        return self.floor_w + self.rise_w * float(clock**self.exponent)

    def clock_at(self, watts: float, lowest: float) -> float:
        """Return the highest clock whose power is at most `watts`, within bounds."""
        if self.watts(FULL_CLOCK) <= watts:
            return FULL_CLOCK
        if self.watts(lowest) >= watts:
            return lowest
        return float(((watts - self.floor_w) / self.rise_w) ** (1 / self.exponent))


class _Group(NamedTuple):
    """Servers of one kind with one duty."""

    servers: int
    token: _Curve
    prompt: _Curve

    def worst_w(self, token_clock: float, prompt_clock: float) -> float:
        return self.servers * max(self.token.watts(token_clock), self.prompt.watts(prompt_clock))


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The servers of a row.  `training` is the curve of a training server: floor, rise and exponent at the plug."""

    models: tuple[ServerModel, ...]
    kind: Ints  # of each server, an index into models
    duty: Ints  # of each server
    training: Draw | None = None  # None: as for prompts
    _curves: Floats = field(init=False, repr=False)  # [2 phases, 3 numbers, servers]
    _brake_clock: Floats = field(init=False, repr=False)
    _groups: "dict[tuple[int, int], _Group]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.kind) != len(self.duty) or not len(self.kind):
            raise RuleError([(("kind",), f"must name each of the {len(self.duty)} servers, and at least one")])
        if self.kind.min() < 0 or self.kind.max() >= len(self.models):
            raise RuleError([(("kind",), f"must be an index into the {len(self.models)} models")])
        if self.duty.min() < 0 or self.duty.max() > max(Duty):
            raise RuleError([(("duty",), "must be 0 (low priority), 1 (high priority) or 2 (training)")])
        pairs = list(zip(self.kind.tolist(), self.duty.tolist(), strict=True))
        curves = {pair: self._curves_of(self.models[pair[0]], pair[1]) for pair in set(pairs)}
        groups = {pair: _Group(count, *curves[pair]) for pair, count in Counter(pairs).items()}
        columns = np.array([curves[pair] for pair in pairs], dtype=np.float64)
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "_curves", columns.transpose(1, 2, 0).copy())
        object.__setattr__(self, "_brake_clock", np.array([self.models[kind].brake_clock for kind in self.kind]))

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def all(self) -> Ints:
        return np.arange(len(self), dtype=np.int64)

    def clocks_of(self, clocks: Clocks) -> Floats:
        """Return [2, servers]: the clocks of each server, writing tokens and reading prompts."""
        by_duty = (
            (clocks.low_token, clocks.high_token, clocks.training),
            (clocks.low_prompt, clocks.high_prompt, clocks.training),
        )
        return np.array(by_duty, dtype=np.float64)[:, self.duty]

    def worst_each_w(self, held: Floats) -> Floats:
        """Return the highest possible power of each server with these clocks; a braked one at its brake clock."""
        clocks = held[[TOKEN_CLOCK, PROMPT_CLOCK]]
        clocks = np.where(held[BRAKE] > 0, np.minimum(clocks, self._brake_clock), clocks)
        watts: Floats = (self._curves[:, 0] + self._curves[:, 1] * clocks ** self._curves[:, 2]).max(axis=0)
        return watts

    def worst_w(self, clocks: Clocks) -> float:
        return sum(_worst_of(group, duty, clocks) for (_, duty), group in self._groups.items())

    def level_within(self, limit_w: float, *, lowest: float) -> Clocks:
        """Return the highest clocks whose worst case fits; the lowest clocks if none fits."""
        groups = self._groups

        def fits(clocks: Clocks) -> bool:
            return self.worst_w(clocks) <= limit_w

        spared = [group for (_, duty), group in groups.items() if duty == Duty.HIGH]
        yielding = [group for (_, duty), group in groups.items() if duty != Duty.HIGH]
        low = _highest_fitting(
            lambda share: _clocks_at(share, yielding, lowest), lambda pair: fits(_clocks(pair, FULL))
        )
        if low is not None:
            return _clocks(low, FULL)
        floor = (lowest, lowest)
        high = _highest_fitting(
            lambda share: _clocks_at(share, spared, lowest), lambda pair: fits(_clocks(floor, pair))
        )
        return _clocks(floor, high or floor)

    def _curves_of(self, model: ServerModel, duty: int) -> tuple[_Curve, _Curve]:
        prompt = _curve(model, model.prompt)
        if duty == Duty.TRAINING:
            own = self.training
            train = prompt if own is None else _Curve(own.floor_w, own.rise_w, own.exponent)
            return train, train
        return _curve(model, model.token, float(model.most_together**model.token_batch_exponent)), prompt


Pair = tuple[float, float]  # clocks writing tokens and reading prompts
FULL: Pair = (FULL_CLOCK, FULL_CLOCK)


def _clocks(low: Pair, high: Pair) -> Clocks:
    return Clocks(low[0], high[0], low[1], high[1], training=min(low))


def _curve(model: ServerModel, draw: Draw, rise_factor: float = 1.0) -> _Curve:
    per_gpu = model.beside * model.gpus
    return _Curve(model.base_w + per_gpu * draw.floor_w, per_gpu * draw.rise_w * rise_factor, draw.exponent)


def _worst_of(group: _Group, duty: int, clocks: Clocks) -> float:
    if duty == Duty.TRAINING:
        return group.worst_w(clocks.training, clocks.training)
    if duty == Duty.HIGH:
        return group.worst_w(clocks.high_token, clocks.high_prompt)
    return group.worst_w(clocks.low_token, clocks.low_prompt)


def _clocks_at(share: float, groups: list[_Group], lowest: float) -> Pair:
    """Return the clocks at which no server of these exceeds that share of its highest power."""
    token = prompt = FULL_CLOCK
    for group in groups:
        target_w = share * group.worst_w(*FULL) / group.servers
        token = min(token, group.token.clock_at(target_w, lowest))
        prompt = min(prompt, group.prompt.clock_at(target_w, lowest))
    return token, prompt


def _highest_fitting(clocks_at: Callable[[float], Pair], fits: Callable[[Pair], bool]) -> Pair | None:
    """Return the clocks of the highest share that fits; None if not even the lowest share fits."""
    if fits(clocks_at(FULL_CLOCK)):
        return clocks_at(FULL_CLOCK)
    if not fits(clocks_at(0.0)):
        return None
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(clocks_at(middle)) else (low, middle)
    return clocks_at(low)
