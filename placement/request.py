"""A placement problem as JSON, for the API."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fleet.documents import RuleError, Violation
from fleet.models import ModelArchitecture
from placement.arrays import MAX_EXPERTS, MAX_LAYERS
from placement.document import Layer, ModelName, Source
from placement.layout import MAX_EXPERT_BYTES
from placement.layout_schema import LayoutSchema, fields_of, nested_tuples
from placement.loads import ExpertLoads
from placement.options import Dispatch, DrawingEngine, Method
from placement.problem import TIME_LIMIT_S, PlacementProblem, numbered

if TYPE_CHECKING:  # only with a trace
    from placement.token_trace import TokenTrace

MAX_CEILING = 1000.0
MAX_SEED = 2**32 - 1
MAX_TIME_LIMIT_S = 600.0
HERE = Source(format="request")
SHARED = (  # fields of a request that a problem has under the same name and in the same form
    "engine",
    "expert_bytes",
    "groups",
    "least_tokens",
    "max_imbalance",
    "max_moves",
    "method",
    "move_gb_per_s",
    "node_gb_per_s",
    "seed",
    "time_limit_s",
)

Load = Annotated[float, Field(ge=0, le=1e18)]
Rate = Annotated[float, Field(gt=0, le=1e9)]
Expert = Annotated[int, Field(ge=0, lt=MAX_EXPERTS)]
Window = Annotated[
    tuple[Annotated[tuple[Load, ...], Field(min_length=1, max_length=MAX_EXPERTS)], ...],
    Field(min_length=1, max_length=MAX_LAYERS),
]


class PlacementRequest(LayoutSchema):
    """Loads of one or more windows, and the layout."""

    model: ModelName | None = Field(default=None, description="A name of the model catalogue.")
    loads: Window | None = Field(default=None, description="[layers][experts]: tokens of each expert.")
    windows: Annotated[tuple[Window, ...], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="[windows][layers][experts] instead, oldest first."
    )
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=MAX_LAYERS)] | None = Field(
        default=None,
        description="Number in the whole model of each row; null: those of the model, else all layers are MoE layers.",
    )
    hidden_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] | None = None
    least_tokens: Load = Field(default=0.0, description="Count every expert with at least this many tokens.")
    dispatch: Dispatch = Dispatch.EQUAL
    engine: DrawingEngine | None = Field(
        default=None, description="With dispatch nearest: plan for the choices that this engine draws."
    )
    method: Method = Field(
        default=Method.SEARCH,
        description="`exact` continues the search with an integer program per layer, "
        "`auto` only where the search leaves a gap.",
    )
    time_limit_s: Annotated[float, Field(ge=0.01, le=MAX_TIME_LIMIT_S)] = Field(
        default=TIME_LIMIT_S, description="For all integer programs together, in seconds."
    )
    groups: Annotated[int, Field(ge=1, le=MAX_EXPERTS)] | None = Field(
        default=None, description="Expert groups of group-limited routing."
    )
    trace: tuple[tuple[tuple[Expert, ...], ...], ...] | None = Field(
        default=None, min_length=1, description="[tokens][layers][k]: the experts of each token."
    )
    max_imbalance: Annotated[float, Field(ge=1, le=MAX_CEILING)] | None = Field(
        default=None, description="Ceiling on the mean over layers."
    )
    current: tuple[tuple[Expert, ...], ...] | None = Field(
        default=None, description="[layers][slots]: the current placement."
    )
    max_moves: Annotated[int, Field(ge=0, le=10**9)] | None = Field(
        default=None, description="Maximum number of copies to move; needs `current`."
    )
    move_gb_per_s: Rate | None = Field(
        default=None, description="Bandwidth for moves, each way, per GPU; the result then has a schedule."
    )
    node_gb_per_s: Rate | None = Field(
        default=None, description="Bandwidth for moves, each way, per node; null: all its GPUs together."
    )
    expert_bytes: Annotated[int, Field(ge=1, le=MAX_EXPERT_BYTES)] | None = Field(
        default=None, description="Weights of one expert in one layer; null: the model's in FP8."
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0

    @classmethod
    def of(cls, problem: PlacementProblem) -> Self:
        """A problem in arrays as a request: what a service needs to solve the same problem."""
        trace, current, loads = problem.trace, problem.current, problem.loads
        return cls(
            **{name: getattr(problem, name) for name in SHARED},
            **fields_of(problem.layout, node_names=problem.node_names, node_costs=problem.node_costs),
            model=problem.model_name,
            windows=nested_tuples(loads.tokens),
            layers=loads.layers,
            hidden_layers=loads.hidden_layers,
            dispatch=problem.rule,
            trace=None if trace is None else nested_tuples(trace.experts),
            current=None if current is None else nested_tuples(current),
        )

    def problem(self, model: ModelArchitecture | None = None) -> PlacementProblem:
        return self._problem if model is None else self._about(model)

    @cached_property
    def _problem(self) -> PlacementProblem:
        return self._about(None)

    def _about(self, model: ModelArchitecture | None) -> PlacementProblem:
        windows = self.windows if self.windows is not None else (self.loads or (),)
        RuleError.raise_for(ragged(windows, "loads" if self.windows is None else "windows"))
        loads = ExpertLoads.of(
            np.array(windows, dtype=np.float64),
            layers=self.layers,
            hidden_layers=self.hidden_layers,
            least_tokens=self.least_tokens,
        )
        return PlacementProblem(
            **{name: getattr(self, name) for name in SHARED},
            loads=numbered(loads, model),
            layout=self.layout,
            node_names=self.node_names,
            node_costs=self.costs,
            rule=self.dispatch,
            trace=_token_trace(self.trace, experts=loads.experts),
            current=None if self.current is None else _rectangle(self.current, "current").astype(np.int64),
            model=model,
            model_name=self.model,
            loads_sources=(HERE,),
            trace_source=None if self.trace is None else HERE,
            current_source=None if self.current is None else HERE,
        ).checked()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.loads is None) == (self.windows is None):
            raise RuleError([(("loads",), "give either loads or windows, not both")])
        if self.model is None:
            _ = self._problem  # with a model, the caller checks
        return self


def _token_trace(chosen: Sequence[Any] | None, *, experts: int) -> "TokenTrace | None":
    if chosen is None:
        return None
    from placement.token_trace import TokenTrace  # noqa: PLC0415 - as above

    return TokenTrace.of(_rectangle(chosen, "trace"), experts_per_layer=experts)


def _rectangle(rows: Sequence[Any], field: str) -> npt.NDArray[Any]:
    try:
        return np.array(rows)
    except ValueError as error:  # numpy reports "inhomogeneous"
        raise RuleError([((field,), "must have rows of one length")]) from error


def ragged(windows: Sequence[Sequence[Sequence[float]]], field: str) -> Iterator[Violation]:
    layers, experts = len(windows[0]), len(windows[0][0])
    for number, window in enumerate(windows):
        place: tuple[str | int, ...] = (field,) if field == "loads" else (field, number)
        if len(window) != layers:
            yield place, f"must have as many layers as the first window ({layers}), got {len(window)}"
        for row, tokens in enumerate(window):
            if len(tokens) != experts:
                yield (*place, row), f"must have as many experts as the first layer ({experts}), got {len(tokens)}"
