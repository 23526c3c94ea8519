"""One emulated worker: a model on GPUs of one type, with its costs and power at a clock level.

Costs are the planner's (`planner.performance.step_costs`) for a replica at that clock; the host's work per request and
the cache do not follow it.  Power follows the power curve: an iteration that processes a prompt is full load, one that
only decodes has the load of its share of the highest token rate.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Self

from pydantic import Field, model_validator

from deploy.emulator.engine import IDLE, Engine, Work
from fleet.documents import Frozen, RuleError
from fleet.errors import UnknownNameError
from fleet.gpus import GpuSpec, builtin_gpus
from fleet.models import ModelArchitecture, builtin_models
from planner.performance import ReplicaConfig, StepCosts, step_costs, step_s
from planner.performance.kv_memory import misfits
from power.controls import FULL_CLOCK
from power.curves import PowerCurve, power_curve

MIN_CLOCK = 0.1  # far below the lowest clock of any GPU

Name = Annotated[str, Field(min_length=1, max_length=100)]


class WorkerSpec(Frozen):
    """One replica of a deployment."""

    gpu: Name = Field(description="Name in the catalogue.")
    model: Name = Field(default="Llama-3.1-8B", description="Name in the catalogue.")
    gpus: int = Field(default=1, ge=1, le=64, description="Per replica, with tensor parallelism.")
    input_tokens: int = Field(default=1000, ge=1, le=1_000_000, description="Typical, to linearise the costs at.")
    output_tokens: int = Field(default=250, ge=1, le=1_000_000)
    max_sequences: int | None = Field(
        default=None, ge=1, le=100_000, description="Fewer at once than the model allows."
    )
    time_scale: float = Field(default=1.0, gt=0, le=10_000, description="Model seconds per second.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        try:
            config = self.config()
        except UnknownNameError as error:
            raise ValueError(str(error)) from error
        (reason,) = misfits(config, [self.input_tokens + self.output_tokens])
        if reason is not None:
            raise RuleError([(("gpus",), f"{self.model} on {self.gpus} {self.gpu}: {reason}")])
        return self

    def config(self, clock: float = FULL_CLOCK) -> ReplicaConfig:
        """Return the replica as the planner describes it."""
        return ReplicaConfig(model=self._model, gpu=self.board, tensor_parallel=self.gpus, clock=clock)

    @property
    def board(self) -> GpuSpec:
        """Return the GPU from the catalogue."""
        return builtin_gpus().get(self.gpu)

    @property
    def _model(self) -> ModelArchitecture:
        return builtin_models().get(self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A worker at a clock level."""

    clock: float
    costs: StepCosts
    watts: Callable[[Work], float]


def tuning(spec: WorkerSpec, *, clock: float = FULL_CLOCK) -> Tuning:
    full, costs = _costs(spec, FULL_CLOCK), _costs(spec, clock)
    costs = replace(costs, request_s=full.request_s, cache_tokens=full.cache_tokens)
    curve, context = power_curve(spec.board), spec.input_tokens + spec.output_tokens // 2
    return Tuning(clock=clock, costs=costs, watts=_watts(curve, costs, gpus=spec.gpus, context=context, clock=clock))


def engine(spec: WorkerSpec, *, clock: float = FULL_CLOCK) -> Engine:
    """Build the engine of a worker at a clock level."""
    tuned = tuning(spec, clock=clock)
    return Engine(costs=tuned.costs, watts=tuned.watts)


def _costs(spec: WorkerSpec, clock: float) -> StepCosts:
    costs = step_costs(spec.config(clock), input_tokens=spec.input_tokens, output_tokens=spec.output_tokens)
    most = costs.max_sequences if spec.max_sequences is None else min(costs.max_sequences, spec.max_sequences)
    return replace(costs, max_sequences=most)


def _watts(curve: PowerCurve, costs: StepCosts, *, gpus: int, context: int, clock: float) -> Callable[[Work], float]:
    places = max(1, min(costs.max_sequences, costs.cache_tokens // context))

    def rate(decoding: int) -> float:
        return decoding / step_s(costs, decoding=float(decoding), cached_tokens=float(decoding * context))

    highest = rate(places)

    def watts(work: Work) -> float:
        load = 1.0 if work.prompt_tokens else 0.0 if work == IDLE else min(1.0, rate(work.decoding) / highest)
        return gpus * curve.power_w(load, clock).mid

    return watts
