"""What is asked, in arrays: loads, where copies can lie, the engine's rule, a ceiling, and what is loaded now."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Self

from fleet.documents import RuleError, Violation
from fleet.models import ModelArchitecture
from placement.arrays import Floats, Ints
from placement.document import DrawingEngine, Source
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.rules import Dispatch
from placement.validation import check_loaded, check_room

if TYPE_CHECKING:  # only for whoever has a trace
    from placement.token_trace import TokenTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What moving copies may take of the links."""

    expert_bytes: int  # weights of one expert in one layer
    move_gb_per_s: float  # sent at most, and received, per GPU
    node_gb_per_s: float | None = None  # the same per node; None: all its GPUs together

    def __post_init__(self) -> None:
        RuleError.raise_for(_rate_violations(self))


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """Everything that a placement follows from."""

    loads: ExpertLoads
    layout: Layout
    node_names: tuple[str, ...] | None = None
    node_costs: Floats | None = None  # [nodes, nodes], of a byte; 1 each if not given
    rule: Dispatch = Dispatch.EQUAL
    engine: DrawingEngine | None = None  # plan for its own draws, not for what they are on average
    trace: "TokenTrace | None" = None
    current: Ints | None = None  # [layers, slots]: what is loaded now
    max_imbalance: float | None = None
    max_moves: int | None = None
    move_gb_per_s: float | None = None  # with it, moves are scheduled
    node_gb_per_s: float | None = None
    expert_bytes: int | None = None  # else the model's, of one byte per weight
    groups: int | None = None  # expert groups of group-limited routing
    model: ModelArchitecture | None = None
    model_name: str | None = None
    least_tokens: float = 0.0
    seed: int = 0
    loads_sources: tuple[Source, ...] = ()
    trace_source: Source | None = None
    current_source: Source | None = None

    def checked(self) -> Self:
        """Itself, or RuleError with every field that does not fit the others."""
        check_room(experts=self.loads.experts, layout=self.layout)
        RuleError.raise_for(_violations(self))
        if self.current is not None:
            _check_current(self.current, experts=self.loads.experts, layout=self.layout)
        return self

    @property
    def pace(self) -> Pace | None:
        """Of moves, where it was said."""
        expert_bytes = self.expert_bytes or (None if self.model is None else self.model.expert_parameters)
        if self.move_gb_per_s is None or expert_bytes is None:
            return None
        return Pace(expert_bytes=expert_bytes, move_gb_per_s=self.move_gb_per_s, node_gb_per_s=self.node_gb_per_s)


def numbered(loads: ExpertLoads, model: ModelArchitecture | None) -> ExpertLoads:
    """Rows that say nothing but that they are MoE layers, under their numbers in the model."""
    bare = loads.hidden_layers == len(loads.layers)
    if model is None or not bare or len(loads.layers) != model.moe_layers:
        return loads
    return replace(loads, layers=moe_layers(model), hidden_layers=model.layers)


def moe_layers(model: ModelArchitecture) -> tuple[int, ...]:
    """Numbers of a model's MoE layers: behind the dense ones, unless the two alternate."""
    if model.family.startswith("llama4") and model.moe_layers < model.layers:
        raise RuleError([(("layers",), f"must be given for {model.name}, whose dense layers do not come first")])
    return tuple(range(model.layers - model.moe_layers, model.layers))


def _check_current(expert_of_slot: Ints, *, experts: int, layout: Layout) -> None:
    try:
        check_loaded(expert_of_slot, experts=experts, layout=layout)
    except RuleError as error:  # which names the field of the answer
        raise RuleError((("current", *path[1:]), message) for path, message in error.violations) from error


def _violations(question: Question) -> Iterator[Violation]:
    loads, groups = question.loads, question.groups
    if groups is not None and (not 1 <= groups <= loads.experts or loads.experts % groups):
        yield ("groups",), f"must divide the number of experts ({loads.experts}), got {groups}"
    if question.max_moves is not None and question.current is None:
        yield ("max_moves",), "needs `current`, the placement that is loaded now"
    if question.current is not None and len(question.current) != len(loads.layers):
        yield ("current",), f"must have as many layers as the loads ({len(loads.layers)}), got {len(question.current)}"
    if question.engine is not None and question.rule is not Dispatch.NEAREST:
        yield ("engine",), "must go with dispatch nearest: only there an engine draws"
    elif question.engine is not None and not question.layout.is_even:
        yield ("engine",), "must go with as many slots on every GPU, as the engine has"
    elif question.engine is not None and (question.trace or question.groups or question.current is not None):
        yield ("engine",), "must not go with a trace, groups or a current placement: its draws decide where copies lie"
    yield from _pace_violations(question)
    yield from _model_violations(question)
    yield from _trace_violations(question)


def _rate_violations(of: Question | Pace) -> Iterator[Violation]:
    for name in ("move_gb_per_s", "node_gb_per_s"):
        rate = getattr(of, name)
        if rate is not None and not 0 < rate < inf:
            yield (name,), f"must be above 0, got {rate:g}"


def _pace_violations(question: Question) -> Iterator[Violation]:
    yield from _rate_violations(question)
    if question.node_gb_per_s is not None and question.move_gb_per_s is None:
        yield ("node_gb_per_s",), "needs `move_gb_per_s`, what moves may take of each GPU's link"
    if question.move_gb_per_s is None:
        return
    if question.current is None:
        yield ("move_gb_per_s",), "needs `current`, the placement that is loaded now"
    if question.expert_bytes is None and question.model is None:
        yield ("move_gb_per_s",), "needs `expert_bytes` or `model`, to know how large a copy is"


def _model_violations(question: Question) -> Iterator[Violation]:
    model, loads = question.model, question.loads
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


def _trace_violations(question: Question) -> Iterator[Violation]:
    trace, model = question.trace, question.model
    if trace is None:
        return
    experts, layers = question.loads.experts, len(question.loads.layers)
    if trace.layers != layers:
        yield ("trace",), f"must have as many layers as the loads ({layers}), got {trace.layers}"
    if trace.experts_per_layer != experts:
        yield ("trace",), f"must be of {experts} experts per layer, as the loads, got {trace.experts_per_layer}"
    if model is not None and trace.active != model.experts_active:
        yield ("trace",), f"must have {model.experts_active} experts per token, as {model.name}, got {trace.active}"
