"""What is said of a placement: how even it is, how even it could be, how many nodes a token reaches, what must move."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.arrays import Floats, Ints
from placement.document import Before, Moves, Placement, Predictions, Provenance, Redundancy, RemoteNodes, Spread
from placement.imbalance import Imbalance, imbalance
from placement.migration import moved_copies
from placement.migration.report import moves
from placement.nearest import engine_imbalance
from placement.problem import Question
from placement.rules import Dispatch
from placement.token_trace import TokenTrace
from placement.traffic import remote_nodes, traffic_cost
from placement.validation import contiguous

ROUNDING = 1e-9  # of a mean over layers


@dataclass(frozen=True, eq=False, kw_only=True)
class Traffic:
    """Tokens whose ways between nodes are counted, and whether anybody saw them."""

    trace: TokenTrace  # to plan on
    judged: (
        TokenTrace  # to judge on: where tokens are modelled, others than those, since a plan fits its own tokens best
    )
    modelled: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """What the methods came to."""

    expert_of_slot: Ints
    bound: Floats  # [layers], proven
    traffic: Traffic | None
    redundancy: Redundancy | None
    solve_s: float


def answered(question: Question, found: Found, *, version: str) -> Placement:
    """The document of a placement."""
    loads, layout = question.loads, question.layout
    spread = figures(question, found.expert_of_slot)
    reached = _reached(question, found.expert_of_slot, found.traffic)
    return Placement(
        model=question.model_name,
        experts=loads.experts,
        slots=layout.slots,
        gpus=layout.gpus,
        nodes=layout.nodes,
        gpu_slots=None if np.ptp(layout.slots_of_gpu) == 0 else tuple(layout.slots_of_gpu.tolist()),
        gpu_speeds=None if np.ptp(layout.speeds) == 0 else tuple(layout.speeds.tolist()),
        **_of_nodes(question),
        layers=loads.layers,
        hidden_layers=loads.hidden_layers,
        dispatch=question.rule,
        engine=question.engine,
        imbalance=Spread.of(spread.per_layer),
        bound=Spread.of(found.bound),
        holds=question.max_imbalance is None or spread.mean <= question.max_imbalance + ROUNDING,
        remote_nodes_per_token=None if reached is None else float(reached.mean()),
        remote_nodes=_remote_nodes(question, found, reached),
        moved_copies=None
        if question.current is None
        else moved_copies(question.current, found.expert_of_slot, layout=layout),
        moves=_moves(question, found.expert_of_slot),
        solve_s=found.solve_s,
        predictions=_predictions(question, found),
        provenance=_provenance(question, version),
        physical_to_logical_map=tuple(map(tuple, found.expert_of_slot.tolist())),
        loads=tuple(map(tuple, loads.total.tolist())),
    )


def _moves(question: Question, expert_of_slot: Ints) -> Moves | None:
    if question.current is None or question.pace is None:
        return None
    return moves(
        question.current,
        expert_of_slot,
        question.loads.total,
        layout=question.layout,
        rule=question.rule,
        layers=question.loads.layers,
        pace=question.pace,
    )


def _of_nodes(question: Question) -> dict[str, Any]:
    """What a document says of nodes that are not all alike."""
    gpus = np.bincount(question.layout.node_of_gpu).tolist()
    costs = question.node_costs
    return {
        "node_gpus": None if len(set(gpus)) == 1 else tuple(gpus),
        "node_names": question.node_names,
        "node_costs": None if costs is None else tuple(map(tuple, costs.tolist())),
    }


def figures(question: Question, expert_of_slot: Ints) -> Imbalance:
    """How even a placement is, as the question counts it."""
    tokens, layout = question.loads.total, question.layout
    if question.engine is not None:
        return _drawn(question, expert_of_slot)
    return imbalance(expert_of_slot, tokens, layout=layout, rule=question.rule)


def _drawn(question: Question, expert_of_slot: Ints) -> Imbalance:
    loads = question.loads
    return engine_imbalance(expert_of_slot, loads.total, layout=question.layout, layers=loads.layers)


def _reached(question: Question, expert_of_slot: Ints, traffic: Traffic | None) -> Floats | None:
    if traffic is None:
        return None
    return remote_nodes(expert_of_slot, traffic.judged, layout=question.layout, rule=question.rule)


def _remote_nodes(question: Question, found: Found, reached: Floats | None) -> RemoteNodes | None:
    traffic = found.traffic
    if traffic is None or reached is None:
        return None
    return RemoteNodes(
        source="modelled" if traffic.modelled else "trace",
        trace_tokens=traffic.judged.tokens,
        per_layer=tuple(reached.tolist()),
        cost_per_token=_cost(question, found.expert_of_slot, traffic),
    )


def _cost(question: Question, expert_of_slot: Ints, traffic: Traffic | None) -> float | None:
    if traffic is None or question.node_costs is None:
        return None
    costs = traffic_cost(
        expert_of_slot, traffic.judged, layout=question.layout, rule=question.rule, cost=question.node_costs
    )
    return float(costs.mean())


def _predictions(question: Question, found: Found) -> Predictions:
    tokens, layout = question.loads.total, question.layout
    rules = (Dispatch.EQUAL, Dispatch.NEAREST)  # by hash GPUs carry what they do under equal
    by_rule = {rule: imbalance(found.expert_of_slot, tokens, layout=layout, rule=rule).mean for rule in rules}
    drawn = question.rule is Dispatch.NEAREST and layout.is_even
    return Predictions(
        imbalance_by_rule=by_rule,
        engine_imbalance=Spread.of(_drawn(question, found.expert_of_slot).per_layer) if drawn else None,
        before=_before(question, found.traffic),
        redundancy=found.redundancy,
    )


def _before(question: Question, traffic: Traffic | None) -> Before:
    loads, layout = question.loads, question.layout
    old = question.current
    if old is None:
        old = contiguous(layers=len(loads.layers), experts=loads.experts, layout=layout)
    spread = imbalance(old, loads.total, layout=layout, rule=question.rule)
    reached = _reached(question, old, traffic)
    return Before(
        what="contiguous" if question.current is None else "current",
        imbalance=Spread.of(spread.per_layer),
        remote_nodes_per_token=None if reached is None else float(reached.mean()),
        cost_per_token=_cost(question, old, traffic),
    )


def _provenance(question: Question, version: str) -> Provenance:
    return Provenance(
        version=version,
        loads=question.loads_sources,
        trace=question.trace_source,
        current=question.current_source,
        windows=question.loads.windows,
        least_tokens=question.least_tokens,
        max_imbalance=question.max_imbalance,
        max_moves=question.max_moves,
        groups=question.groups,
        seed=question.seed,
    )
