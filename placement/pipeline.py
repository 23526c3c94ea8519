"""The room's one entry: a question in, a placement out, by whichever of the methods beside it the question calls for.

| asked for | method | page |
|---|---|---|
| rule equal | `balance`, and `joint` where it leaves a gap to the bound | balance.md, few-slots.md |
| rule nearest | `nearest` | dispatch.md |
| a trace, or groups and a ceiling to model one by | `traffic`, from the above | traffic.md |
| a placement that is loaded now | `migration` | migration.md |

Layers are independent but for the ceiling on their mean, so of two methods each layer takes the better.  No step gives
back what is worse than what it began with.  Importing this module loads compiled code: import it late.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.bounds import lower_bound, redundancy_advice
from placement.bounds.advice import TARGET
from placement.document import Placement, Redundancy
from placement.imbalance import imbalance
from placement.joint import joint_balanced
from placement.layout import Layout
from placement.loads import ExpertLoads
from placement.migration import fewest_moves
from placement.nearest import balanced_nearest, evened_for_engine
from placement.problem import Question
from placement.report import Found, Traffic, answered, figures
from placement.rules import Dispatch
from placement.token_trace import TokenTrace
from placement.traffic import Routing, less_traffic, modelled_trace
from placement.validation import check_slots

TRAFFIC_CEILING = 1.02  # mean imbalance that less traffic may cost, unless told otherwise
MOVES_CEILING = 1.05  # what a loaded placement may drift to before copies are moved
CLOSE_TO_BOUND = 1e-3  # relative: loads of the next window differ by far more
MODELLED_TOKENS = 2048  # to plan on; on 512, what is spared there is not on other tokens
JUDGED_TOKENS = 512
USUAL_ACTIVE = 8  # experts of one token, where no model says


def place(question: Question, *, version: str, clock_s: Callable[[], float]) -> Placement:
    """The placement that a question calls for.  RuleError names what does not fit together.

    `version` is of this program, for the record; `clock_s` a monotonic clock in seconds that times the solving, which
    loading compiled code is no part of.
    """
    question.checked()
    _warm_up(question)
    started_s = clock_s()
    bound = lower_bound(question.loads.total, layout=question.layout, rule=question.rule)
    traffic = _traffic(question)
    expert_of_slot = _chosen(question, bound=bound, traffic=traffic)
    solve_s = clock_s() - started_s
    _keep_promise(question, expert_of_slot)
    found = Found(
        expert_of_slot=expert_of_slot,
        bound=bound,
        traffic=traffic,
        redundancy=_redundancy(question, bound),
        solve_s=solve_s,
    )
    return answered(question, found, version=version)


def _warm_up(question: Question) -> None:
    """Load what the question will call, on the smallest case there is: the first call of a process takes long."""
    nodes = min(2, question.layout.nodes)
    tiny = Question(
        loads=ExpertLoads.of([[8.0, 1.0, 1.0, 1.0]]),
        layout=Layout.even(slots=6, gpus=2, nodes=nodes),
        rule=question.rule,
        engine=question.engine,
        groups=None if question.groups is None else 1,
        trace=None if question.trace is None else TokenTrace.of([[[0, 1]]], experts_per_layer=4),
        current=None if question.current is None else np.array([[1, 2, 3, 0, 1, 2]]),
        max_imbalance=question.max_imbalance,
    )
    _chosen(tiny, bound=np.zeros(1), traffic=_traffic(tiny))  # a bound that leaves a gap, for every method to be called


def _keep_promise(question: Question, expert_of_slot: Ints) -> None:
    """What no engine may load is a defect of a method, not of the question."""
    try:
        check_slots(expert_of_slot, experts=question.loads.experts, layout=question.layout)
    except RuleError as error:
        raise AssertionError(f"a method of this room broke its promise: {error}") from error


def _chosen(question: Question, *, bound: Floats, traffic: Traffic | None) -> Ints:
    if question.current is not None:
        return moved(question, question.current)
    start = even(question, bound)
    if traffic is None or question.layout.nodes == 1:
        return start
    return less_traffic(
        question.loads.total,
        traffic.trace,
        layout=question.layout,
        rule=question.rule,
        ceiling=max(question.max_imbalance or TRAFFIC_CEILING, figures(question, start).mean),
        seed=question.seed,
        start=start,
        cost=question.node_costs,
    )


def even(question: Question, bound: Floats) -> Ints:
    """As even as the methods for the engine's rule make it."""
    tokens, layout = question.loads.total, question.layout
    if question.rule is Dispatch.NEAREST:
        found = _even_for_nearest(tokens, bound, layout=layout)
        if question.engine is None:
            return found
        return evened_for_engine(found, tokens, layout=layout, layers=question.loads.layers)
    found = balanced(tokens, layout=layout)
    left = np.flatnonzero(figures(question, found).per_layer > bound * (1 + CLOSE_TO_BOUND))
    if len(left):
        found[left] = joint_balanced(tokens[left], layout=layout, start=found[left])
    return found


def _even_for_nearest(tokens: Floats, bound: Floats, *, layout: Layout) -> Ints:
    """By a plan for the rule, and where that leaves a gap, by one for even shares: better where slots are few."""
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


def moved(question: Question, current: Ints) -> Ints:
    """The loaded placement, with as few copies elsewhere as the ceiling needs and the bound on moves allows."""
    return fewest_moves(
        current,
        question.loads.total,
        layout=question.layout,
        rule=question.rule,
        ceiling=question.max_imbalance or MOVES_CEILING,
        max_moves=question.max_moves,
    ).expert_of_slot


def _traffic(question: Question) -> Traffic | None:
    """The trace given, else one modelled from the loads where groups are given and a ceiling says what it may cost."""
    if question.trace is not None:
        # Compiled code takes writable arrays, and one that was read from bytes is not.
        experts = np.require(question.trace.experts, requirements=["C", "W"])
        trace = replace(question.trace, experts=experts)
        return Traffic(trace=trace, judged=trace, modelled=False)
    if question.groups is None or question.max_imbalance is None:
        return None
    active = USUAL_ACTIVE if question.model is None else question.model.experts_active
    routing = Routing(
        active=min(active, question.loads.experts), groups=question.groups, active_groups=-(-question.groups // 2)
    )
    rng = np.random.default_rng(question.seed)
    trace = modelled_trace(question.loads.total, routing=routing, count=MODELLED_TOKENS + JUDGED_TOKENS, rng=rng)
    return Traffic(
        trace=trace.part(0, MODELLED_TOKENS),
        judged=trace.part(MODELLED_TOKENS, trace.tokens),
        modelled=True,
    )


def _redundancy(question: Question, bound: Floats) -> Redundancy | None:
    """How many slots would let these loads lie evenly, where those there are do not."""
    if bound.mean() <= TARGET:
        return None
    advice = redundancy_advice(
        question.loads.total,
        layout=question.layout,
        expert_bytes=0 if question.model is None else question.model.expert_parameters,
        rule=question.rule,
    )
    step = advice.enough or advice.steps[-1]
    if step.slots == question.layout.slots:
        return None
    return Redundancy(
        slots=step.slots,
        bound_mean=step.bound_mean,
        fp8_bytes_per_gpu=None if question.model is None else step.extra_bytes_per_gpu,
    )
