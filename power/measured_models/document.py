"""The document of power shares of GPU boards: fitted shares, cited facts, and the error of each.

`power/data/curves.yaml` ships the part for the planner, `power/data/engines.yaml` the engines that were measured one by
one.  `fleetwright power fit` writes both parts into one file of this model.
Formulas: docs/explanation/power/measured-models.md.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cache, cached_property
from importlib import resources
from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.catalogues import folded
from fleet.documents import Frozen, RuleError, parse_document, read_model
from fleet.gpus import GpuSpec

Share = Annotated[float, Field(ge=0, le=2)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
Coefficient = Annotated[float, Field(ge=-20, le=20)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]
Watt = Annotated[float, Field(gt=0, le=1e6)]
OffBy = Annotated[float, Field(ge=0, le=100)]


class Spread(Frozen):
    """A figure with the range of 90 % of the measurements."""

    low: Share
    mid: Share
    high: Share

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not self.low <= self.mid <= self.high:
            raise RuleError([((), f"must rise from low to high, got {self.low:g}, {self.mid:g}, {self.high:g}")])
        return self


class Error(Frozen):
    """The error of a formula on held-out data: |predicted / measured - 1|."""

    mean: OffBy
    p90: OffBy
    bias: Annotated[float, Field(ge=-100, le=100)]  # with its sign
    n: Count


class BoardShares(Frozen):
    """Power of one type of board, as shares of its rated power."""

    name: str
    idle_share: Spread  # powered, weights loaded, nothing to do
    busy_share: Spread  # at the highest rate the engine reaches
    load_exponent: Annotated[float, Field(gt=0, le=1)]
    load_spread: Spread  # measured over fitted, below full load
    measured: bool
    source: str
    date: dt.date


class ServingShares(Frozen):
    """Power of one type of board that writes tokens, by what runs on it and how much of it at a time:
    idle + e^level * min(batch, saturation)^batch * (active per GPU)^active * (total per GPU)^total * GPUs^gpus.
    """

    name: Name
    level: Coefficient
    batch: Annotated[float, Field(ge=0, le=1)]
    saturation: Annotated[float, Field(ge=1, le=1e6)]  # requests; beyond it power rises no more
    active: Coefficient  # of 10^9 parameters used per token and GPU
    total: Coefficient  # of 10^9 parameters held per GPU
    gpus: Coefficient
    constant_error: Error  # of one busy share for all, for comparison; models held out
    new_model_error: Error  # of a model without measurements, predicted from its size
    known_engine_error: Error  # of a batch without measurements, predicted from the engine's other batches
    families: Count
    source: str
    date: dt.date


class Engine(Frozen):
    """A measured engine: one model on so many boards of a type."""

    gpu: Name
    model: Name
    gpus: Annotated[int, Field(ge=1, le=1024)]
    active_billions: Annotated[float, Field(gt=0, le=1e6)]  # parameters used per token, in 10^9
    layout: str = ""  # how the model is split, its precision, and the task
    idle_share: Share
    rise_share: Share = 0.0  # above idle with one request in the batch; 0: no power was recorded
    batch_exponent: Annotated[float, Field(ge=0, le=1)] = 0.0
    saturation: Annotated[float, Field(ge=1, le=1e6)] = 1e6
    prompt_share: Share = 0.0  # reading prompts that fill the board; 0: not recorded
    token_s: Seconds  # one token, alone
    token_batch_growth: Annotated[float, Field(ge=0, le=1)]
    prompt_s: tuple[Seconds, Seconds, Seconds] | None = None
    batches: tuple[float, float]  # measured; nothing is known outside
    power_error: Error | None = None
    token_time_error: Error
    prompt_time_error: Error | None = None
    prompt_power_error: Error | None = None

    def share(self, batch: float) -> float:
        """Return the power of a board that writes tokens for `batch` requests, as a share of its rated power."""
        rise = self.rise_share * float(min(batch, self.saturation) ** self.batch_exponent)
        return min(1.0, self.idle_share + rise)


class LimitSweep(Frozen):
    """Training on one type of board under power limits."""

    name: Name
    full_limit_w: Watt
    floor_share: Annotated[float, Field(ge=0, lt=1)]
    exponent: Annotated[float, Field(ge=0.5, le=6)]
    lowest_clock: Annotated[float, Field(gt=0, le=1)]  # reached in the sweep
    power_error: Error  # of power, from the speed; jobs held out
    pooled_power_error: Error  # the same by the document's one clock curve, fitted on the other board types if any
    time_error: Error  # of time, from the power limit; jobs held out
    jobs: Count
    source: str
    date: dt.date


class ClockShares(Frozen):
    """The power and speed that remain at a lower clock."""

    floor_share: Annotated[float, Field(ge=0, lt=1)]
    exponent: Annotated[float, Field(ge=1, le=4)]
    spread: Spread
    compute_sensitivity: Spread
    memory_sensitivity: Spread
    lowest: Annotated[float, Field(gt=0, lt=1)]  # of the fitted range
    source: str
    date: dt.date

    def left(self, clock: float) -> float:
        """Return the remaining share of full power at a clock."""
        return self.floor_share + (1 - self.floor_share) * float(clock**self.exponent)


class ServerShares(Frozen):
    """CPUs, memory, fans, NICs and conversion losses inside the server, per GPU; without the cooling of the room."""

    base_share_of_tdp: Share
    share_of_gpu: Share
    spread: Spread
    source: str
    date: dt.date


class PowerShares(Frozen):
    boards: tuple[BoardShares, ...]
    unmeasured: BoardShares
    clock: ClockShares
    server: ServerShares
    serving: tuple[ServingShares, ...] = ()
    sweeps: tuple[LimitSweep, ...] = ()
    engines: tuple[Engine, ...] = ()
    idle_shares: Mapping[str, Share] = {}  # cited, of boards that no table of engines has

    @cached_property
    def by_name(self) -> dict[str, BoardShares]:
        return {folded(board.name): board for board in self.boards}

    def board(self, gpu: GpuSpec) -> BoardShares:
        """Return the shares of a GPU type; the shares of all boards together for an unmeasured type."""
        return self.by_name.get(folded(gpu.name), self.unmeasured)

    def idle_share(self, name: str) -> float:
        """Return the share at idle: measured for this board, else cited, else that of all boards together."""
        known = self.by_name.get(folded(name))
        cited = {folded(board): share for board, share in self.idle_shares.items()}.get(folded(name))
        return known.idle_share.mid if known else self.unmeasured.idle_share.mid if cited is None else cited


class Engines(Frozen):
    engines: tuple[Engine, ...]


@cache
def builtin_shares() -> PowerShares:
    """Return the shipped shares without single engines."""
    return read_model(parse_document(_shipped("curves.yaml"), name="power/data/curves.yaml"), PowerShares)


@cache
def builtin_curves() -> PowerShares:
    part = read_model(parse_document(_shipped("engines.yaml"), name="power/data/engines.yaml"), Engines)
    return builtin_shares().model_copy(update={"engines": part.engines})


def _shipped(name: str) -> str:
    return resources.files("power").joinpath("data", name).read_text(encoding="utf-8")
