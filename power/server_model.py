"""The power and speed of a server by phase, clock and batch, for simulation and planning.

    GPU, reading a prompt     floor + rise * clock^a
    GPU, writing tokens       floor + rise * clock^a * batch^b
    server                    base + beside * GPUs * (GPU power)
    prompt of p tokens        (s0 + s1*p + s2*p^2) * (1 + k_prompt * (1/clock - 1))
    one token, n together     t0 * (1 + g * (n - 1)) * max(1 + k_token * (1/clock - 1), floor_time / clock)

The last factor: at low clocks even memory-bound work becomes compute-bound.
"""

from typing import Annotated, Self, TypeVar

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError
from power.arrays import Floats
from power.controls import FULL_CLOCK, Phase

TokensT = TypeVar("TokensT", float, Floats)
Watt = Annotated[float, Field(ge=0, le=1e6)]
Clock = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]
Exponent = Annotated[float, Field(ge=0, le=4)]
Sensitivity = Annotated[float, Field(ge=0, le=1)]


class Draw(Frozen):
    """Power of one GPU in a phase, by its clock."""

    floor_w: Watt
    rise_w: Watt
    exponent: Exponent

    def watts(self, clock: float) -> float:
        """Return the power at a clock, as a share of the full clock."""
        return self.floor_w + self.rise_w * float(clock**self.exponent)


class ServerModel(Frozen):
    """A type of server with one model on it."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    gpus: Annotated[int, Field(ge=1, le=128)]
    gpu_idle_w: Watt
    prompt: Draw
    token: Draw
    token_batch_exponent: Exponent = 0.0
    base_w: Watt  # CPUs, memory, fans, NICs with all GPUs at nothing
    beside: Annotated[float, Field(ge=1, le=3)]  # watts at the plug per watt of GPU: conversion and fans
    parked_w: Watt
    wake_s: Seconds  # from parked to ready
    prompt_s: tuple[Seconds, Seconds, Seconds]  # s0, s1 per token, s2 per token squared
    token_s: Annotated[float, Field(gt=0, le=100)]  # alone, at full clock
    token_batch_growth: Annotated[float, Field(ge=0, le=1)]  # g
    prompt_sensitivity: Sensitivity = 1.0
    token_sensitivity: Sensitivity = 0.15
    token_floor_time: Annotated[float, Field(ge=0, le=1)] = 0.5
    most_together: Annotated[int, Field(ge=1, le=1024)] = 1  # requests that fit in memory
    full_clock_mhz: Annotated[float, Field(gt=0, le=10_000)]
    brake_clock: Clock  # share left by the power brake

    @property
    def idle_w(self) -> float:
        return self._server(self.gpu_idle_w)

    def prompt_w(self, clock: float = FULL_CLOCK) -> float:
        return self._server(self.prompt.watts(clock))

    def token_w(self, clock: float = FULL_CLOCK, together: int = 1) -> float:
        """Return the power while writing tokens for `together` requests."""
        rise = self.token.rise_w * float(clock**self.token.exponent) * float(together**self.token_batch_exponent)
        return self._server(self.token.floor_w + rise)

    def watts(self, phase: Phase, clock: float = FULL_CLOCK, together: int = 1) -> float:
        """Return the power at the plug, in any phase but training."""
        if phase is Phase.PROMPT:
            return self.prompt_w(clock)
        if phase is Phase.TOKEN:
            return self.token_w(clock, together)
        return self.parked_w if phase is Phase.PARKED else self.idle_w

    def prompt_time_s(self, tokens: TokensT, clock: float = FULL_CLOCK) -> TokensT:
        """Return the time to read a prompt of so many tokens; an array gives one time per prompt."""
        s0, s1, s2 = self.prompt_s
        return (s0 + s1 * tokens + s2 * tokens * tokens) * self.prompt_slowdown(clock)

    def token_time_s(self, together: int = 1, clock: float = FULL_CLOCK) -> float:
        """Return the time to write one token for each of so many requests."""
        return self.token_s * (1 + self.token_batch_growth * (together - 1)) * self.token_slowdown(clock)

    def prompt_slowdown(self, clock: float) -> float:
        """Return time over time at full clock."""
        return 1 + self.prompt_sensitivity * (1 / clock - 1)

    def token_slowdown(self, clock: float) -> float:
        return max(1 + self.token_sensitivity * (1 / clock - 1), self.token_floor_time / clock)

    def _server(self, gpu_w: float) -> float:
        return self.base_w + self.beside * self.gpus * gpu_w


class Training(Frozen):
    """Servers that compute together and exchange together: they peak at once."""

    compute_w: Watt  # of one server at full clock
    trough_w: Watt  # of one server while it exchanges
    compute_share: float = Field(gt=0, le=1)  # of an iteration at full clock
    clock_exponent: Exponent = 1.3  # of the part above the trough

    @model_validator(mode="after")
    def _swings_down(self) -> Self:
        if self.trough_w > self.compute_w:
            raise RuleError([(("trough_w",), f"must be at most compute_w ({self.compute_w:g}), got {self.trough_w:g}")])
        return self

    def peak_w(self, clock: float = FULL_CLOCK) -> float:
        """Return the power of one server that computes."""
        return self.trough_w + (self.compute_w - self.trough_w) * float(clock**self.clock_exponent)

    def slowdown(self, clock: float) -> float:
        """Return the slowdown of an iteration."""
        return 1 + self.compute_share * (1 / clock - 1)


# A DGX A100 of 8 x 80 GB that serves BLOOM-176B.  Times: fitted on splitwise-sim's perf_model.csv (MIT, 8f99e7d); idle
# GPU: the same repository.  Board and server power: fitted to 2.1 kW idle and 5.7 kW at the peak (POLCA, arXiv
# 2308.12908, recalled); exponents assumed, varied in bench.  Parked, assumed: off but for its BMC; waking boots the
# server and loads the weights.  Together: in 16 bits BLOOM's weights take 352 GB and a token of context 4.0 MB (keys
# and values of 70 layers of 14336), so with a tenth of 640 GB free the rest fits six of the longest requests of POLCA's
# mix (8704 tokens).  Brake: POLCA's 288 of 1410 MHz.
BLOOM_A100 = ServerModel(
    name="8xA100-80GB BLOOM-176B",
    gpus=8,
    gpu_idle_w=63.0,
    prompt=Draw(floor_w=63.0, rise_w=345.0, exponent=1.3),
    token=Draw(floor_w=138.0, rise_w=114.0, exponent=1.5),
    base_w=1400.0,
    beside=1.32,
    parked_w=150.0,
    wake_s=600.0,
    prompt_s=(0.050, 2.15e-4, 2.6e-8),
    token_s=0.049,
    token_batch_growth=0.0115,
    most_together=6,
    full_clock_mhz=1410.0,
    brake_clock=288 / 1410,
)
