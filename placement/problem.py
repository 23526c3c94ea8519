"""A placement problem in arrays: loads, layout, dispatch rule, ceiling and current placement."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Self

from fleet.documents import RuleError, Violation
from fleet.models import ModelArchitecture
from placement.arrays import Floats, Ints
from placement.document import Source
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.options import Dispatch, DrawingEngine, Method
from placement.validation import check_capacity, check_loaded

if TYPE_CHECKING:  # only with a trace
    from placement.token_trace import TokenTrace


TIME_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The bandwidth that moves may use."""

    expert_bytes: int  # weights of one expert in one layer
    move_gb_per_s: float  # each way, per GPU
    node_gb_per_s: float | None = None  # each way, per node; None: all its GPUs together

    def __post_init__(self) -> None:
        RuleError.raise_for(_rate_violations(self))


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacementProblem:
    loads: ExpertLoads
    layout: Layout
    node_names: tuple[str, ...] | None = None
    node_costs: Floats | None = None  # [nodes, nodes], of a byte; None: 1 each
    rule: Dispatch = Dispatch.EQUAL
    engine: DrawingEngine | None = None  # plan for its draws instead of their average
    method: Method = Method.SEARCH
    time_limit_s: float = TIME_LIMIT_S  # of the integer programs together
    trace: "TokenTrace | None" = None
    current: Ints | None = None  # [layers, slots]: the current placement
    max_imbalance: float | None = None
    max_moves: int | None = None
    move_gb_per_s: float | None = None  # given: moves get a schedule
    node_gb_per_s: float | None = None
    expert_bytes: int | None = None  # None: the model's, with one byte per weight
    groups: int | None = None  # expert groups of group-limited routing
    model: ModelArchitecture | None = None
    model_name: str | None = None
    least_tokens: float = 0.0
    seed: int = 0
    loads_sources: tuple[Source, ...] = ()
    trace_source: Source | None = None
    current_source: Source | None = None

    def checked(self) -> Self:
        """The problem itself, or RuleError with every field that does not fit the others."""
        check_capacity(experts=self.loads.experts, layout=self.layout)
        RuleError.raise_for(_violations(self))
        if self.current is not None:
            _check_current(self.current, experts=self.loads.experts, layout=self.layout)
        return self

    @property
    def generates_trace(self) -> bool:
        """Whether tokens are generated from the loads, to count and reduce traffic."""
        return self.trace is None and self.groups is not None and self.max_imbalance is not None

    @property
    def has_exact_form(self) -> bool:
        """Whether an integer program exists: the even split, and balance as the only goal."""
        return not any(_exact_violations(self))

    @property
    def pace(self) -> Pace | None:
        expert_bytes = self.expert_bytes or (None if self.model is None else self.model.expert_parameters)
        if self.move_gb_per_s is None or expert_bytes is None:
            return None
        return Pace(expert_bytes=expert_bytes, move_gb_per_s=self.move_gb_per_s, node_gb_per_s=self.node_gb_per_s)


def numbered(loads: ExpertLoads, model: ModelArchitecture | None) -> ExpertLoads:
    """Rows without layer numbers get those of the model's MoE layers."""
    bare = loads.hidden_layers == len(loads.layers)
    if model is None or not bare or len(loads.layers) != model.moe_layers:
        return loads
    return replace(loads, layers=moe_layers(model), hidden_layers=model.layers)


def moe_layers(model: ModelArchitecture) -> tuple[int, ...]:
    """The numbers of a model's MoE layers: after the dense ones, unless the two alternate."""
    if model.family.startswith("llama4") and model.moe_layers < model.layers:
        raise RuleError([(("layers",), f"must be given for {model.name}, whose dense layers do not come first")])
    return tuple(range(model.layers - model.moe_layers, model.layers))


def _check_current(expert_of_slot: Ints, *, experts: int, layout: Layout) -> None:
    try:
        check_loaded(expert_of_slot, experts=experts, layout=layout)
    except RuleError as error:  # the error names the field of a document
        raise RuleError((("current", *path[1:]), message) for path, message in error.violations) from error


def _violations(problem: PlacementProblem) -> Iterator[Violation]:
    loads, groups = problem.loads, problem.groups
    if groups is not None and (not 1 <= groups <= loads.experts or loads.experts % groups):
        yield ("groups",), f"must divide the number of experts ({loads.experts}), got {groups}"
    if problem.max_moves is not None and problem.current is None:
        yield ("max_moves",), "needs `current`, the placement to start from"
    if problem.current is not None and len(problem.current) != len(loads.layers):
        yield ("current",), f"must have as many layers as the loads ({len(loads.layers)}), got {len(problem.current)}"
    if problem.engine is not None and problem.rule is not Dispatch.NEAREST:
        yield ("engine",), "must go with dispatch nearest: only that rule has draws"
    elif problem.engine is not None and not problem.layout.is_even:
        yield ("engine",), "must go with equal slots on every GPU, as the engine has"
    elif problem.engine is not None and (problem.trace or problem.groups or problem.current is not None):
        yield ("engine",), "must not go with a trace, groups or a current placement: the draws decide where copies lie"
    if problem.method is Method.EXACT:
        yield from _exact_violations(problem)
    if not 0 < problem.time_limit_s < inf:
        yield ("time_limit_s",), f"must be above 0, got {problem.time_limit_s:g}"
    yield from _pace_violations(problem)
    yield from _model_violations(problem)
    yield from _trace_violations(problem)


def _exact_violations(problem: PlacementProblem) -> Iterator[Violation]:
    if problem.rule is Dispatch.NEAREST:
        yield ("method",), "exact must go with dispatch equal or hash"
    if problem.trace is not None or problem.generates_trace or problem.current is not None:
        yield ("method",), "exact must not go with a trace, groups or a current placement"


def _rate_violations(of: PlacementProblem | Pace) -> Iterator[Violation]:
    for name in ("move_gb_per_s", "node_gb_per_s"):
        rate = getattr(of, name)
        if rate is not None and not 0 < rate < inf:
            yield (name,), f"must be above 0, got {rate:g}"


def _pace_violations(problem: PlacementProblem) -> Iterator[Violation]:
    yield from _rate_violations(problem)
    if problem.node_gb_per_s is not None and problem.move_gb_per_s is None:
        yield ("node_gb_per_s",), "needs `move_gb_per_s`, the bandwidth for moves per GPU"
    if problem.move_gb_per_s is None:
        return
    if problem.current is None:
        yield ("move_gb_per_s",), "needs `current`, the placement to start from"
    if problem.expert_bytes is None and problem.model is None:
        yield ("move_gb_per_s",), "needs `expert_bytes` or `model`, for the size of a copy"


def _model_violations(problem: PlacementProblem) -> Iterator[Violation]:
    model, loads = problem.model, problem.loads
    if model is None:
        return
    if not model.moe_layers:
        yield ("model",), f"must have experts, {model.name} has none"
    elif loads.experts != model.experts:
        yield ("loads",), f"must have {model.experts} experts per layer, as {model.name}, got {loads.experts}"
    elif len(loads.layers) != model.moe_layers or loads.hidden_layers != model.layers:
        wanted, got = (
            f"{moe} MoE layers of {all_layers}"
            for moe, all_layers in ((model.moe_layers, model.layers), (len(loads.layers), loads.hidden_layers))
        )
        yield ("loads",), f"must have {wanted}, as {model.name}, got {got}"


def _trace_violations(problem: PlacementProblem) -> Iterator[Violation]:
    trace, model = problem.trace, problem.model
    if trace is None:
        return
    experts, layers = problem.loads.experts, len(problem.loads.layers)
    if trace.layers != layers:
        yield ("trace",), f"must have as many layers as the loads ({layers}), got {trace.layers}"
    if trace.experts_per_layer != experts:
        yield ("trace",), f"must be of {experts} experts per layer, as the loads, got {trace.experts_per_layer}"
    if model is not None and trace.active != model.experts_active:
        yield ("trace",), f"must have {model.experts_active} experts per token, as {model.name}, got {trace.active}"
