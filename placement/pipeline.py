"""The entry of the package: from a placement problem to a placement, by the method that the problem calls for.

| problem | method | page |
|---|---|---|
| rule equal | `balance`, and `joint` where it leaves a gap to the bound | balance.md |
| the same with method exact or auto | `exact`, from the result above | exact.md |
| rule nearest | `nearest` | dispatch.md |
| a trace, or groups and a ceiling to generate one | `traffic`, from the result above | traffic.md |
| a current placement | `migration` | migration.md |

Only the ceiling on the mean joins layers, so of two methods each layer takes the better.  No step returns a worse
placement than its start.  Importing this module loads compiled code: import it late.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fleet.documents import RuleError
from fleet.solvers import Limits
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.bounds import lower_bound, redundancy_advice
from placement.bounds.lower_bound import TARGET
from placement.document import EvenLoadSlots, Placement
from placement.imbalance import imbalance
from placement.joint import joint_balanced
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.migration import minimise_moves
from placement.nearest import balanced_for_sglang, balanced_nearest
from placement.options import Dispatch, Method
from placement.problem import PlacementProblem
from placement.report import Solution, Traffic, evaluate, placement_document
from placement.token_trace import TokenTrace
from placement.traffic import Routing, generate_trace, minimise_traffic
from placement.validation import check_slots

TRAFFIC_CEILING = 1.02  # default for the mean imbalance that less traffic may cost
MOVES_CEILING = 1.05  # default for the mean imbalance above which copies move
MIN_GAP = 1e-6  # relative: smaller gaps are within a solver's tolerance
CLOSE_TO_BOUND = 1e-3  # relative: loads of the next window differ by far more
PLANNING_TOKENS = 2048  # for planning; a plan on 512 does not save as much on other tokens
EVALUATION_TOKENS = 512
DEFAULT_ACTIVE = 8  # experts per token, without a model


def place(problem: PlacementProblem, *, version: str, clock_s: Callable[[], float]) -> Placement:
    """Solve a problem.  RuleError names the fields that do not fit together.

    `version` of this program goes into the provenance.  `clock_s` is a monotonic clock in seconds; `solve_s` excludes
    the loading of compiled code.
    """
    problem.checked()
    _warm_up(problem, clock_s=clock_s)
    started_s = clock_s()
    bound = lower_bound(problem.loads.total, layout=problem.layout, rule=problem.rule)
    traffic = _traffic(problem)
    expert_of_slot = _chosen(problem, bound=bound, traffic=traffic)
    exact = _exact(problem, expert_of_slot, bound, clock_s=clock_s)
    solve_s = clock_s() - started_s
    _check_legal(problem, exact.expert_of_slot)
    found = Solution(
        expert_of_slot=exact.expert_of_slot,
        bound=exact.bound,
        method=exact.method,
        traffic=traffic,
        redundancy=_redundancy(problem, bound),
        solve_s=solve_s,
    )
    return placement_document(problem, found, version=version)


def _warm_up(problem: PlacementProblem, *, clock_s: Callable[[], float]) -> None:
    """Load the code that the problem needs on the smallest case: the first call of a process takes long."""
    nodes = min(2, problem.layout.nodes)
    tiny = PlacementProblem(
        loads=ExpertLoads.of([[8.0, 1.0, 1.0, 1.0]]),
        layout=Layout.even(slots=6, gpus=2, nodes=nodes),
        rule=problem.rule,
        engine=problem.engine,
        groups=None if problem.groups is None else 1,
        trace=None if problem.trace is None else TokenTrace.of([[[0, 1]]], experts_per_layer=4),
        current=None if problem.current is None else np.array([[1, 2, 3, 0, 1, 2]]),
        max_imbalance=problem.max_imbalance,
        method=problem.method,
    )
    start = _chosen(tiny, bound=np.zeros(1), traffic=_traffic(tiny))
    _exact(tiny, start, np.zeros(1), clock_s=clock_s)  # a bound with a gap, so that every method runs


@dataclass(frozen=True, eq=False)
class _Exact:
    """A placement after the integer programs, with the better bound."""

    expert_of_slot: Ints
    bound: Floats
    method: Method  # the method that ran


def _exact(problem: PlacementProblem, found: Ints, bound: Floats, *, clock_s: Callable[[], float]) -> _Exact:
    """Continue a search result with integer programs, on the layers where it leaves a gap; never worse than it."""
    if problem.method is Method.SEARCH or not problem.has_exact_form:
        return _Exact(found, bound, Method.SEARCH)
    from placement.exact import incumbent, size_violations, solve_exact  # noqa: PLC0415 - loads a solver

    tokens, layout = problem.loads.total, problem.layout
    violations = tuple(size_violations(problem.loads.experts, layout))
    if problem.method is Method.EXACT:
        RuleError.raise_for((("method",), message) for _, message in violations)
    smallest_gap = MIN_GAP if problem.method is Method.EXACT else CLOSE_TO_BOUND
    reached = imbalance(found, tokens, layout=layout).per_layer
    left = np.flatnonzero(reached > bound * (1 + smallest_gap))
    if violations or not len(left):
        return _Exact(found, bound, problem.method if problem.method is Method.EXACT else Method.SEARCH)
    tight = incumbent(tokens[left], layout=layout)
    better = imbalance(tight, tokens[left], layout=layout).per_layer < reached[left]
    start = np.where(better[:, np.newaxis], tight, found[left])
    limits = Limits(time_limit_s=problem.time_limit_s, clock_s=clock_s)
    solved = solve_exact(tokens[left], layout=layout, limits=limits, start=start)
    expert_of_slot, proven = found.copy(), bound.copy()
    expert_of_slot[left] = solved.expert_of_slot
    proven[left] = np.maximum(bound[left], [layer.bound for layer in solved.layers])
    return _Exact(expert_of_slot, proven, Method.EXACT)


def _check_legal(problem: PlacementProblem, expert_of_slot: Ints) -> None:
    """An illegal placement is a defect of a method, not of the problem."""
    try:
        check_slots(expert_of_slot, experts=problem.loads.experts, layout=problem.layout)
    except RuleError as error:
        raise AssertionError(f"a placement method returned an illegal placement: {error}") from error


def _chosen(problem: PlacementProblem, *, bound: Floats, traffic: Traffic | None) -> Ints:
    if problem.current is not None:
        return solve_migration(problem, problem.current)
    start = solve_balance(problem, bound)
    if traffic is None or problem.layout.nodes == 1:
        return start
    return minimise_traffic(
        problem.loads.total,
        traffic.trace,
        layout=problem.layout,
        rule=problem.rule,
        ceiling=max(problem.max_imbalance or TRAFFIC_CEILING, evaluate(problem, start).mean),
        seed=problem.seed,
        start=start,
        cost=problem.node_costs,
    )


def solve_balance(problem: PlacementProblem, bound: Floats) -> Ints:
    """The most even placement that the methods for the rule find."""
    tokens, layout = problem.loads.total, problem.layout
    if problem.rule is Dispatch.NEAREST:
        found = _even_for_nearest(tokens, bound, layout=layout)
        if problem.engine is None:
            return found
        return balanced_for_sglang(found, tokens, layout=layout, layers=problem.loads.layers)
    found = balanced(tokens, layout=layout)
    left = np.flatnonzero(evaluate(problem, found).per_layer > bound * (1 + CLOSE_TO_BOUND))
    if len(left):
        found[left] = joint_balanced(tokens[left], layout=layout, start=found[left])
    return found


def _even_for_nearest(tokens: Floats, bound: Floats, *, layout: Layout) -> Ints:
    """A plan for the rule; layers with a gap also from a plan for the even split, which is better with few slots."""
    rule = Dispatch.NEAREST
    found = balanced_nearest(tokens, layout=layout)
    reached = imbalance(found, tokens, layout=layout, rule=rule).per_layer
    left = np.flatnonzero(reached > bound * (1 + CLOSE_TO_BOUND))
    if not len(left):
        return found
    start = joint_balanced(tokens[left], layout=layout)
    other = balanced_nearest(tokens[left], layout=layout, start=start)
    better = imbalance(other, tokens[left], layout=layout, rule=rule).per_layer < reached[left]
    found[left[better]] = other[better]
    return found


def solve_migration(problem: PlacementProblem, current: Ints) -> Ints:
    """The current placement after the fewest moves that the ceiling needs, within `max_moves`."""
    return minimise_moves(
        current,
        problem.loads.total,
        layout=problem.layout,
        rule=problem.rule,
        ceiling=problem.max_imbalance or MOVES_CEILING,
        max_moves=problem.max_moves,
    )


def _traffic(problem: PlacementProblem) -> Traffic | None:
    """The given trace, or one generated from the loads where groups and a ceiling are given."""
    if problem.trace is not None:
        # Compiled code takes writable arrays; an array from bytes is read-only.
        experts = np.require(problem.trace.experts, requirements=["C", "W"])
        trace = replace(problem.trace, experts=experts)
        return Traffic(trace=trace, evaluated=trace, modelled=False)
    if problem.groups is None or not problem.generates_trace:
        return None
    active = DEFAULT_ACTIVE if problem.model is None else problem.model.experts_active
    routing = Routing(
        active=min(active, problem.loads.experts), groups=problem.groups, active_groups=-(-problem.groups // 2)
    )
    rng = np.random.default_rng(problem.seed)
    trace = generate_trace(problem.loads.total, routing=routing, count=PLANNING_TOKENS + EVALUATION_TOKENS, rng=rng)
    return Traffic(
        trace=trace.part(0, PLANNING_TOKENS),
        evaluated=trace.part(PLANNING_TOKENS, trace.tokens),
        modelled=True,
    )


def _redundancy(problem: PlacementProblem, bound: Floats) -> EvenLoadSlots | None:
    """The number of slots that would allow an even load, where the present ones do not."""
    if bound.mean() <= TARGET:
        return None
    step = redundancy_advice(
        problem.loads.total,
        layout=problem.layout,
        expert_bytes=0 if problem.model is None else problem.model.expert_parameters,
        rule=problem.rule,
    )
    if step.slots == problem.layout.slots:
        return None
    return EvenLoadSlots(
        slots=step.slots,
        bound_mean=step.bound_mean,
        fp8_bytes_per_gpu=None if problem.model is None else step.extra_bytes_per_gpu,
    )
