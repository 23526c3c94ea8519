"""Every constraint of docs/explanation/planner/formulation.md, section 3, under the same name.

`planner.horizon.program` adds the rows over periods.
"""

from collections.abc import Mapping, Sequence
from math import inf

from planner.problem import Loss
from planner.solve.ilp.model import MixModel, Terms, Variable

LIGHT_REPLICAS = 1e-2  # a smaller load may vanish in a solver's tolerances


def add_demand(model: MixModel) -> None:
    """demand[w,b]: the shares of a bucket sum to 1."""
    for (w, b), shares in _takers(model).items():
        model.equal(f"demand_{w}_{b}", shares, 1)


def add_demand_at_most(model: MixModel) -> None:
    """demand_at_most[w,b]: the shares of a bucket sum to at most 1."""
    for (w, b), shares in _takers(model).items():
        model.at_most(f"demand_at_most_{w}_{b}", shares, 1)


def add_served(model: MixModel, served_rps: float) -> None:
    """served: the served demand is at least this rate."""
    model.at_most("served", ((x, -rate) for x, rate in served_terms(model)), -served_rps)


def add_capacity(model: MixModel) -> None:
    """capacity[o]: the load of an option is at most the capacity of its replicas."""
    for o, n in model.replicas.items():
        load = [*model.needed(o), *_protection(model, o)]
        model.at_most(f"capacity_{o}", [*load, (n, -model.problem.options[o].uptime)], 0)


def add_running(model: MixModel) -> None:
    """running[r,o,b]: a share needs a running replica; a separate row where the load is too small for `capacity`."""
    for o, n in model.replicas.items():
        for r, route, leg in model.legs_through[o]:
            for b in range(len(leg.max_rps)):
                if (r, b) in model.shares and model.problem.replicas_per_share(route, leg, b) < LIGHT_REPLICAS:
                    x = (model.shares[r, b], 1 / model.scale(r, b))
                    model.at_most(f"running_{r}_{o}_{b}", [x, (n, -1.0)], 0)


def add_packing(model: MixModel) -> None:
    """packing[f]: replicas fit on the GPUs of the hired units."""
    options, supplies = model.problem.options, model.problem.supplies
    for f, m in model.units.items():
        if model.own_units:
            taken = [(k, 1.0) for o, k in model.own_units.items() if options[o].supply == f]
            model.at_most(f"packing_{f}", [*taken, (m, -1.0)], 0)
        else:
            taken = [(n, options[o].slots) for o, n in model.replicas.items() if options[o].supply == f]
            model.at_most(f"packing_{f}", [*taken, (m, -supplies[f].slots)], 0)


def add_own_nodes(model: MixModel) -> None:
    """own_nodes[o]: an option's replicas use units without any other option."""
    for o, k in model.own_units.items():
        option = model.problem.options[o]
        slots = model.problem.supplies[option.supply].slots
        model.at_most(f"own_nodes_{o}", [(model.replicas[o], option.slots), (k, -slots)], 0)


def add_stock(model: MixModel) -> None:
    """stock[f]: units are within the stock, plus the extra units of P4."""
    for f, m in model.units.items():
        if (available := model.problem.supplies[f].available) is not None:
            extra = [(model.extra_units[f], -1.0)] if f in model.extra_units else []
            model.at_most(f"stock_{f}", [(m, 1.0), *extra], available)


def add_limit(model: MixModel) -> None:
    """limit[l]: quotas, power domains, the spot share and the budget."""
    for position, limit in enumerate(model.problem.limits):
        terms = [(model.units[f], weight) for f, weight in limit.units.items() if f in model.units]
        terms += [(model.replicas[o], weight) for o, weight in limit.replicas.items() if o in model.replicas]
        if terms:
            scale = max(1.0, *(abs(weight) for _, weight in terms))
            model.at_most(f"limit_{position}", [(x, weight / scale) for x, weight in terms], limit.at_most / scale)


def add_min_replicas(model: MixModel) -> None:
    """min_replicas[w]: a workload has at least its minimum of replicas."""
    for w, load in enumerate(model.problem.loads):
        if load.min_replicas:
            counts = [(model.replicas[o], -1.0) for o in model.problem.options_of(w) if o in model.replicas]
            model.at_most(f"min_replicas_{w}", counts, -load.min_replicas)


def add_started(model: MixModel) -> None:
    """started[o], stopped[o], starts, stops: changes from the running replicas are counted and limited."""
    change, options = model.problem.change, model.problem.options
    costs = model.problem.objective.counts_switching
    if not costs and change.max_started is None and change.max_stopped is None:
        return
    for o, n in model.replicas.items():
        model.started[o] = model.add_variable(f"started_{o}")
        model.stopped[o] = model.add_variable(f"stopped_{o}")
        model.at_most(f"started_{o}", [(n, 1.0), (model.started[o], -1.0)], options[o].held)
        model.at_most(f"stopped_{o}", [(n, -1.0), (model.stopped[o], -1.0)], -options[o].held)
    if change.max_started is not None:
        model.at_most("starts", ((u, 1.0) for u in model.started.values()), change.max_started)
    if change.max_stopped is not None:
        model.at_most("stops", ((v, 1.0) for v in model.stopped.values()), change.max_stopped)


def add_left(model: MixModel, losses: Mapping[int, Loss]) -> None:
    """left[k,o], left_if_any[k,o]: the replicas left by a failure that takes some of them, `max(0, n - lost)`."""
    for k, loss in losses.items():
        for o, lost in loss.lost.items():
            if o not in model.replicas or lost is None:
                continue
            n, left = model.replicas[o], model.add_variable(f"left_{k}_{o}")
            none = model.add_variable(f"none_left_{k}_{o}", integer=True)
            most = _most_useful(model, o)
            model.at_most(f"left_{k}_{o}", [(left, 1.0), (n, -1.0), (none, -lost)], -lost)
            model.at_most(f"left_if_any_{k}_{o}", [(left, 1.0 / most), (none, 1.0)], 1)
            model.left[k, o] = left


def add_service(
    model: MixModel, *, position: int, weights: Sequence[float], need: float
) -> list[tuple[Variable, float]]:
    """service[c]: at these prices, the replicas are worth at least the demand."""
    terms = [(model.replicas[o], weight) for o, weight in enumerate(weights) if weight and o in model.replicas]
    model.at_most(f"service_{position}", ((x, -weight) for x, weight in terms), -need)
    return terms


def add_survivor_cut(
    model: MixModel, *, scenario: int, loss: Loss, position: int, weights: Sequence[float], need: float
) -> list[tuple[Variable, float]]:
    """survivor_cut[k,c]: the same for the replicas left by a failure."""
    left = {o: left_of(model, scenario, o, loss) for o in model.options}
    terms = [(left[o], weight) for o, weight in enumerate(weights) if weight and left.get(o) is not None]
    model.at_most(f"survivor_cut_{scenario}_{position}", ((x, -weight) for x, weight in terms), -need)
    return terms


def left_of(model: MixModel, scenario: int, option: int, loss: Loss) -> Variable | None:
    """The replicas of an option after a failure; None if none is left."""
    if option not in loss.lost:
        return model.replicas[option]
    return model.left.get((scenario, option))


def add_chosen_units(model: MixModel, units: Sequence[int]) -> None:
    """chosen_units[f]: units are within those of another program."""
    for f, m in model.units.items():
        model.at_most(f"chosen_units_{f}", [(m, 1.0)], units[f])


def add_ceiling(model: MixModel, terms: Terms, value: float) -> None:
    """ceiling: the objective is no worse than in another program."""
    model.at_most("ceiling", terms, value)


def add_evenness(model: MixModel, replicas: Sequence[int]) -> None:
    """evenness[o]: the load per replica is at most that of the workload's busiest option."""
    for o in model.options:
        load = [*model.needed(o), *_protection(model, o)]
        for w in {route.load for _, route, _ in model.legs_through[o]} if load else ():
            carried = replicas[o] * model.problem.options[o].uptime
            model.at_most(f"evenness_{o}_{w}", [*load, (model.busiest[w], -carried)], 0)


def served_terms(model: MixModel) -> list[tuple[Variable, float]]:
    problem = model.problem
    return [
        (x, problem.loads[problem.routes[r].load].rate_rps[b] / model.scale(r, b)) for (r, b), x in model.shares.items()
    ]


def _takers(model: MixModel) -> dict[tuple[int, int], list[tuple[Variable, float]]]:
    takers: dict[tuple[int, int], list[tuple[Variable, float]]] = {bucket: [] for bucket in model.problem.buckets()}
    for (r, b), x in model.shares.items():
        takers[model.problem.routes[r].load, b].append((x, 1 / model.scale(r, b)))
    return takers


def _protection(model: MixModel, option: int) -> list[tuple[Variable, float]]:
    """deviation[r,o,b]: the additional load of the worst Γ buckets (Bertsimas and Sim 2004, theorem 1)."""
    budget = model.problem.erring_buckets
    if not budget:
        return []
    deviations: list[tuple[Variable, float]] = []
    base = model.add_variable(f"deviation_base_{option}")
    for r, route, leg in model.legs_through[option]:
        for b in range(len(leg.max_rps)):
            if (r, b) in model.shares and (excess := model.problem.excess_per_share(route, leg, b)) > 0:
                extra = model.add_variable(f"deviation_extra_{r}_{option}_{b}")
                share = (model.shares[r, b], excess / model.scale(r, b))
                model.at_most(f"deviation_{r}_{option}_{b}", [share, (base, -1.0), (extra, -1.0)], 0)
                deviations.append((extra, 1.0))
    return [(base, float(budget)), *deviations] if deviations else []


def _most_useful(model: MixModel, option: int) -> float:
    """Replicas of an option if it serves every bucket that it can."""
    problem = model.problem
    uptime = problem.options[option].uptime
    whole = sum(
        problem.replicas_per_share(route, leg, b)
        for _, route, leg in model.legs_through[option]
        for b, rate_rps in enumerate(problem.loads[route.load].rate_rps)
        if rate_rps > 0 and route.serves(b)
    )
    return max(1.0, min(whole / uptime, model.most.get(option, inf)))
