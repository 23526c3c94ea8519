"""The figures of a placement: imbalance, bound, remote nodes and moves."""

from dataclasses import dataclass

import numpy as np

from placement.arrays import Floats, Ints
from placement.document import (
    Before,
    EvenLoadSlots,
    MoveBatch,
    Moves,
    Placement,
    PlacementProvenance,
    Predictions,
    RemoteNodes,
    Spread,
)
from placement.imbalance import Imbalance, imbalance
from placement.layout import Layout
from placement.layout_schema import fields_of, nested_tuples
from placement.loads import ExpertLoads
from placement.migration import Links, moved_copies, schedule_moves
from placement.migration.schedule import Batch
from placement.nearest import engine_imbalance
from placement.options import Dispatch, Method
from placement.problem import Pace, PlacementProblem
from placement.token_trace import TokenTrace
from placement.traffic import remote_nodes, traffic_cost
from placement.validation import contiguous

ROUNDING = 1e-9  # of a mean over layers


@dataclass(frozen=True, eq=False, kw_only=True)
class Traffic:
    """The tokens for traffic figures, recorded or generated."""

    trace: TokenTrace  # for planning
    evaluated: TokenTrace  # generated tokens are others than those of the plan, which fits its own better
    modelled: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution:
    expert_of_slot: Ints
    bound: Floats  # [layers], proven
    method: Method
    traffic: Traffic | None
    redundancy: EvenLoadSlots | None
    solve_s: float


def placement_document(problem: PlacementProblem, found: Solution, *, version: str) -> Placement:
    loads, layout = problem.loads, problem.layout
    spread = evaluate(problem, found.expert_of_slot)
    reached = _remote_nodes_per_layer(problem, found.expert_of_slot, found.traffic)
    return Placement(
        model=problem.model_name,
        experts=loads.experts,
        **fields_of(layout, node_names=problem.node_names, node_costs=problem.node_costs),
        layers=loads.layers,
        hidden_layers=loads.hidden_layers,
        dispatch=problem.rule,
        engine=problem.engine,
        imbalance=Spread.of(spread.per_layer),
        method=found.method,
        bound=Spread.of(found.bound),
        gap=max(0.0, 1 - float(found.bound.mean()) / spread.mean),
        holds=problem.max_imbalance is None or spread.mean <= problem.max_imbalance + ROUNDING,
        remote_nodes_per_token=None if reached is None else float(reached.mean()),
        remote_nodes=_remote_nodes(problem, found, reached),
        moved_copies=None
        if problem.current is None
        else moved_copies(problem.current, found.expert_of_slot, layout=layout),
        moves=_moves(problem, found.expert_of_slot),
        solve_s=found.solve_s,
        predictions=_predictions(problem, found),
        provenance=_provenance(problem, version),
        physical_to_logical_map=nested_tuples(found.expert_of_slot),
        loads=nested_tuples(loads.total),
    )


def _moves(problem: PlacementProblem, expert_of_slot: Ints) -> Moves | None:
    if problem.current is None or problem.pace is None:
        return None
    loads, layout = problem.loads, problem.layout
    return moves(problem.current, expert_of_slot, loads, layout=layout, rule=problem.rule, pace=problem.pace)


def evaluate(problem: PlacementProblem, expert_of_slot: Ints) -> Imbalance:
    tokens, layout = problem.loads.total, problem.layout
    if problem.engine is not None:
        return _drawn(problem, expert_of_slot)
    return imbalance(expert_of_slot, tokens, layout=layout, rule=problem.rule)


def _drawn(problem: PlacementProblem, expert_of_slot: Ints) -> Imbalance:
    loads = problem.loads
    return engine_imbalance(expert_of_slot, loads.total, layout=problem.layout, layers=loads.layers)


def _remote_nodes_per_layer(problem: PlacementProblem, expert_of_slot: Ints, traffic: Traffic | None) -> Floats | None:
    if traffic is None:
        return None
    return remote_nodes(expert_of_slot, traffic.evaluated, layout=problem.layout, rule=problem.rule)


def _remote_nodes(problem: PlacementProblem, found: Solution, reached: Floats | None) -> RemoteNodes | None:
    traffic = found.traffic
    if traffic is None or reached is None:
        return None
    return RemoteNodes(
        source="modelled" if traffic.modelled else "trace",
        trace_tokens=traffic.evaluated.tokens,
        per_layer=tuple(reached.tolist()),
        cost_per_token=_cost(problem, found.expert_of_slot, traffic),
    )


def _cost(problem: PlacementProblem, expert_of_slot: Ints, traffic: Traffic | None) -> float | None:
    if traffic is None or problem.node_costs is None:
        return None
    costs = traffic_cost(
        expert_of_slot, traffic.evaluated, layout=problem.layout, rule=problem.rule, cost=problem.node_costs
    )
    return float(costs.mean())


def _predictions(problem: PlacementProblem, found: Solution) -> Predictions:
    tokens, layout = problem.loads.total, problem.layout
    rules = (Dispatch.EQUAL, Dispatch.NEAREST)  # loads under `hash` equal those under `equal`
    by_rule = {rule: imbalance(found.expert_of_slot, tokens, layout=layout, rule=rule).mean for rule in rules}
    drawn = problem.rule is Dispatch.NEAREST and layout.is_even
    return Predictions(
        imbalance_by_rule=by_rule,
        engine_imbalance=Spread.of(_drawn(problem, found.expert_of_slot).per_layer) if drawn else None,
        before=_before(problem, found.traffic),
        redundancy=found.redundancy,
    )


def _before(problem: PlacementProblem, traffic: Traffic | None) -> Before:
    loads, layout = problem.loads, problem.layout
    old = problem.current
    if old is None:
        old = contiguous(layers=len(loads.layers), experts=loads.experts, layout=layout)
    spread = imbalance(old, loads.total, layout=layout, rule=problem.rule)
    reached = _remote_nodes_per_layer(problem, old, traffic)
    return Before(
        what="contiguous" if problem.current is None else "current",
        imbalance=Spread.of(spread.per_layer),
        remote_nodes_per_token=None if reached is None else float(reached.mean()),
        cost_per_token=_cost(problem, old, traffic),
    )


def _provenance(problem: PlacementProblem, version: str) -> PlacementProvenance:
    return PlacementProvenance(
        version=version,
        loads=problem.loads_sources,
        trace=problem.trace_source,
        current=problem.current_source,
        windows=problem.loads.windows,
        least_tokens=problem.least_tokens,
        max_imbalance=problem.max_imbalance,
        max_moves=problem.max_moves,
        groups=problem.groups,
        method=problem.method,
        time_limit_s=None if problem.method is Method.SEARCH else problem.time_limit_s,
        seed=problem.seed,
    )


def moves(before: Ints, after: Ints, loads: ExpertLoads, *, layout: Layout, rule: Dispatch, pace: Pace) -> Moves:
    """The schedule of the moves between two placements whose common copies have equal slots."""
    node_gb_per_s = pace.node_gb_per_s or pace.move_gb_per_s * int(np.bincount(layout.node_of_gpu).max())
    links = Links(pace.move_gb_per_s, node_gb_per_s, share=1.0)
    found = schedule_moves(
        before, after, loads.total, layout=layout, rule=rule, expert_bytes=pace.expert_bytes, links=links
    )
    return Moves(
        copies=moved_copies(before, after, layout=layout),
        bytes=round(found.moved_bytes),
        duration_s=found.duration_s,
        expert_bytes=pace.expert_bytes,
        gpu_gb_per_s=links.gpu_gb_per_s,
        node_gb_per_s=links.node_gb_per_s,
        batches=tuple(_batch(batch, layout, loads.layers) for batch in found.batches),
    )


def _batch(batch: Batch, layout: Layout, layers: tuple[int, ...]) -> MoveBatch:
    here = layout.gpu_of_slot[list(batch.slots)].tolist()
    return MoveBatch(
        layer=layers[batch.layer],
        copies=sum(gpu != source for gpu, source in zip(here, batch.sources, strict=True)),
        start_s=batch.start_s,
        end_s=batch.end_s,
        imbalance=batch.mean_imbalance,
        slots=batch.slots,
        sources=batch.sources,
        beside=batch.beside,
    )
