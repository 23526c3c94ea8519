"""Plans to export: solved ones, and drawn ones with many kinds of options."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.solvers import Solver, SolveStatus
from planner.engine_flags import ServingEngine, engine_flags, replica_settings
from planner.export import Dialect, ExportedFile, ExportSettings, PlanSource, export_plan
from planner.options.enumeration import FULL_CLOCK, Layout, Shape
from planner.performance.config import Role
from planner.result import Allocation, Hire, Plan
from tests.planner.requests import NOW, from_offers, offer, solved

IMAGES = {"image": {"nvidia": "registry.invalid/nvidia:1", "amd": "registry.invalid/amd:1"}}
MODELS = ("Llama-3.1-8B", "Llama-3.1-70B", "Mixtral-8x7B", "DeepSeek-V3")
BUCKETS = ("500x250", "4000x250", "500x1000", "4000x1000")


@dataclass(frozen=True)
class Option:
    """One kind of replicas of a drawn plan."""

    shape: Shape
    gpu: str
    offer: str
    count: int
    gpus_per_instance: int

    @property
    def name(self) -> str:
        return f"{self.offer}/{self.shape.name(builtin_gpus().get(self.gpu))}"


def plan_of(workloads: Mapping[str, tuple[str, Sequence[Option], Mapping[str, Mapping[str, float]]]]) -> Plan:
    """A plan that runs these options of each workload's model, with this routing."""
    entries = [
        _allocation(workload, model, option)
        for workload, (model, options, _routing) in workloads.items()
        for option in options
    ]
    options = {option.offer: option for _model, found, _routing in workloads.values() for option in found}
    return Plan(
        status=SolveStatus.OPTIMAL,
        cost_usd_per_h=1.0,
        allocation=tuple(entries),
        hires=tuple(_hire(option) for option in options.values()),
        routing={workload: routing for workload, (_model, _options, routing) in workloads.items()},
        solver=Solver.HIGHS,
        solve_s=0.0,
        planned_at=NOW,
    )


def option(
    gpu: str = "H100-SXM", *, offer_id: str = "here/x8", count: int = 1, gpus_per_instance: int = 8, **shape: Any
) -> Option:
    return Option(Shape(**shape), gpu, offer_id, count, gpus_per_instance)


def whole(*options: Option) -> dict[str, dict[str, float]]:
    """Equal weights for all options."""
    return {bucket: {each.name: 1 / len(options) for each in options} for bucket in BUCKETS}


def split(prefill: Option, decode: Option) -> dict[str, dict[str, float]]:
    return {bucket: {f"{prefill.name} + {decode.name}": 1.0} for bucket in BUCKETS}


SPLIT = (
    option(role="prefill", layout=Layout(tensor_parallel=2), precision="fp8", count=3),
    option("H200-SXM", offer_id="here/h200", role="decode", layout=Layout(tensor_parallel=4), precision="fp8", count=2),
)
WIDE = option(layout=Layout(tensor_parallel=8, pipeline_parallel=2), precision="fp8", count=2)


def split_plan() -> Plan:
    return plan_of({"chat": ("Llama-3.1-70B", SPLIT, split(*SPLIT))})


def mixed_plan() -> Plan:
    """Two GPU types of two vendors for one workload."""
    options = (option("MI300X", offer_id="here/mi", precision="fp8", count=2), option(clock=0.7, count=4))
    return plan_of({"chat": ("Llama-3.1-8B", options, whole(*options))})


def wide_plan() -> Plan:
    """Replicas over two nodes."""
    return plan_of({"long": ("Llama-3.1-405B", [WIDE], whole(WIDE))})


def solved_plan() -> Plan:
    return solved(from_offers(model="Llama-3.1-70B", precisions=["fp8", "bf16"]) | {"offers": OFFERS})


OFFERS = [offer("here/h100x8", "H100-SXM", 32, gpus_per_instance=8), offer("here/a100", "A100-80GB-SXM", 2.5)]


def exported(plan: Plan, dialect: Dialect, **settings: Any) -> tuple[ExportedFile, ...]:
    """The files with images for every vendor."""
    chosen = ExportSettings.model_validate(IMAGES | settings)
    source = PlanSource(plan=plan, release="0.2.0")
    return export_plan(source, dialect=dialect, settings=chosen, gpus=builtin_gpus())


@st.composite
def shapes(draw: st.DrawFn, role: Role, *, experts: bool) -> Shape:
    width, stages = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 1, 1, 2)))
    ranks = width if experts and width > 1 and draw(st.booleans()) else 1
    layout = Layout(
        tensor_parallel=width // ranks,
        pipeline_parallel=stages if ranks == 1 else 1,
        attention_data_parallel=ranks,
        expert_parallel=width if ranks > 1 else 1,
        redundant_experts=draw(st.sampled_from((0, 8))) if ranks > 1 else 0,
    )
    return Shape(
        layout=layout,
        precision=draw(st.sampled_from(("bf16", "fp16", "fp8", "fp4", "int8-wo", "int4-wo"))),
        kv_precision=draw(st.sampled_from(("bf16", "fp8"))),
        clock=draw(st.sampled_from((FULL_CLOCK, 0.7))),
        role=role,
    )


@st.composite
def plans(draw: st.DrawFn, *, one_pair: bool = False, one_node: bool = False, one_rank: bool = False) -> Plan:
    """Up to two workloads with up to three options of whole requests, and prefill and decode options."""

    def options(role: Role, model: str, least: int, most: int, workload: str) -> Iterator[Option]:
        experts = builtin_models().get(model).experts > 0 and not one_rank
        for number in range(draw(st.integers(least, most))):
            shape = draw(shapes(role, experts=experts))
            instance = draw(st.sampled_from((8,) if shape.gpus < 8 or one_node else (8, 16)))
            if one_node and shape.gpus > instance:
                instance = shape.gpus
            gpu = draw(st.sampled_from(("H100-SXM", "H200-SXM", "L4", "A100-80GB-SXM", "MI300X")))
            yield Option(shape, gpu, f"{workload}/{role}/{number}", draw(st.integers(1, 40)), instance)

    found = {}
    for workload in draw(st.sampled_from((("chat",), ("chat", "Code & Docs 2"), ("7b", "7B"), ("chat-pd", "chat")))):
        model = draw(st.sampled_from(MODELS))
        pairs = draw(st.integers(0, 1 if one_pair else 2))
        alone = list(options("both", model, 0 if pairs else 1, 3, workload))
        prefill = list(options("prefill", model, pairs, pairs, workload))
        decode = list(options("decode", model, pairs, pairs, workload))
        routes = [each.name for each in alone]
        routes += [f"{one.name} + {other.name}" for one in prefill for other in decode]
        routing = {bucket: dict.fromkeys(routes, 1 / len(routes)) for bucket in BUCKETS}
        found[workload] = (model, [*alone, *prefill, *decode], routing)
    return plan_of(found)


def _allocation(workload: str, model: str, option: Option) -> Allocation:
    gpu, architecture = builtin_gpus().get(option.gpu), builtin_models().get(model)
    settings = replica_settings(option.shape, model=architecture, named=None, gpu=gpu, max_context_tokens=5000)
    return Allocation(
        workload=workload,
        option=option.name,
        gpu=gpu.name,
        count=option.count,
        gpus_per_replica=option.shape.gpus,
        clock=option.shape.clock,
        offer=option.offer,
        busy=0.5,
        power_w=None,
        settings=settings,
        engine_flags={engine: engine_flags(settings, engine) for engine in ServingEngine},
    )


def _hire(option: Option) -> Hire:
    return Hire(
        name=option.offer,
        offer=option.offer,
        units=option.count,
        gpus_per_unit=option.gpus_per_instance,
        price_usd_per_h=8.0,
        cost_usd_per_h=8.0 * option.count,
    )
