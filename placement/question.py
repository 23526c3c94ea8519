"""What is asked, in arrays: loads, where copies can lie, the engine's rule, a ceiling, and what is loaded now."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from fleet.documents import Flaw, RuleError
from fleet.models import ModelArchitecture
from placement.arrays import Ints
from placement.document import DrawingEngine, Rule, Source
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.slots import check_room, check_slots

if TYPE_CHECKING:  # only for whoever has a trace
    from placement.tokens import TokenTrace


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """Everything that a placement follows from."""

    loads: ExpertLoads
    layout: Layout
    rule: Rule = "equal"
    engine: DrawingEngine | None = None  # plan for its own draws, not for what they are on average
    trace: "TokenTrace | None" = None
    current: Ints | None = None  # [layers, slots]: what is loaded now
    max_imbalance: float | None = None
    max_moves: int | None = None
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
        RuleError.raise_for(_flaws(self))
        if self.current is not None:
            _check_current(self.current, experts=self.loads.experts, layout=self.layout)
        return self


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
        check_slots(expert_of_slot, experts=experts, layout=layout)
    except RuleError as error:  # which names the field of the answer
        raise RuleError((("current", *path[1:]), message) for path, message in error.flaws) from error


def _flaws(question: Question) -> Iterator[Flaw]:
    loads, groups = question.loads, question.groups
    if groups is not None and (not 1 <= groups <= loads.experts or loads.experts % groups):
        yield ("groups",), f"must divide the number of experts ({loads.experts}), got {groups}"
    if question.max_moves is not None and question.current is None:
        yield ("max_moves",), "needs the placement that is loaded now"
    if question.current is not None and len(question.current) != len(loads.layers):
        yield ("current",), f"must have as many layers as the loads ({len(loads.layers)}), got {len(question.current)}"
    if question.engine is not None and question.rule != "nearest":
        yield ("engine",), "must go with dispatch nearest: only there an engine draws"
    elif question.engine is not None and not question.layout.is_even:
        yield ("engine",), "must go with as many slots on every GPU, as the engine has"
    elif question.engine is not None and (question.trace or question.groups or question.current is not None):
        yield ("engine",), "must not go with a trace, groups or a current placement: its draws decide where copies lie"
    yield from _model_flaws(question)
    yield from _trace_flaws(question)


def _model_flaws(question: Question) -> Iterator[Flaw]:
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


def _trace_flaws(question: Question) -> Iterator[Flaw]:
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
