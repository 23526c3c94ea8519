"""Many workloads that share stock and power: the decomposition beside the same program given whole to HiGHS.

Instances.  20 to 100 workloads x 14 options x 60 request sizes.  Options: L40S x 1, A100-80GB and H100 x 1, 2, 4, 8,
H200 x 1, 2, 4, B200 x 1, 2, from the roofline; L40S singly, the others out of nodes of 8 that all workloads share, at
the cheapest on-demand price per GPU of the shipped sheet.  Workloads take twelve models in turn, a mean TPOT of 50 or
100 ms, a rate between 1 and 100 req/s (log-uniform), lognormal request sizes, and 1 % spread evenly over all sizes.

Both limits bind.  Stock: of each GPU type that is a tenth or more of the GPUs in the best mix without limits, 0.8 of
what that mix uses; of each other type half of all GPUs it uses.  Power: 0.98 of the nameplate power of the best mix
within that stock.  `stock_price` is the highest price of a GPU above its hire and `power_price` that of a kW, at the
root's bound: positive where the limit binds.

Each has ten seconds and may stop at a gap of 0.1 %.  The code is compiled before the first clock starts.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import erf, exp, inf, log, sqrt

import numpy as np
import numpy.typing as npt

from bench.demand_tables import INPUTS, OUTPUTS
from bench.harness import Row
from bench.mix_tables import cheapest_usd_per_h
from bench.roofline import grid_rates
from fleet.gpus import builtin_gpus
from fleet.slo import LatencyLimits, Slo
from fleet.solvers import Limits, Solver, SolveStatus
from fleet.solvers import run as run_program
from planner.problem import Leg, Limit, LimitKind, Load, MixProblem, ReplicaOption, Route, Supply
from planner.solve import ilp
from planner.solve.branch_and_price import Solved, solve_decomposed

MODEL_COUNTS = (20, 50, 100)
LIMITS = Limits(time_limit_s=10.0, relative_gap=1e-3)
ROUGH = Limits(time_limit_s=120.0, relative_gap=1e-2)  # for the mixes that set stock and power: not to be cut short
SEED = 20
SIZES_OF = {
    "L40S": (1,),
    "A100-80GB-SXM": (1, 2, 4, 8),
    "H100-SXM": (1, 2, 4, 8),
    "H200-SXM": (1, 2, 4),
    "B200": (1, 2),
}
NODE_GPUS = 8
MODELS = (
    "Llama-3.1-8B", "Llama-3.1-70B", "Mistral-7B", "Qwen2.5-7B", "Qwen2.5-72B", "Qwen3-32B",
    "Gemma-2-9B", "Gemma-3-27B", "Phi-4", "Qwen3-30B-A3B", "gpt-oss-20b", "Mixtral-8x7B",
)  # fmt: skip
TPOT_MS = (50.0, 100.0)
INPUT_MEDIANS, OUTPUT_MEDIANS = (300, 1000, 3000), (100, 250, 400)
INPUT_SPREAD, OUTPUT_SPREAD = 1.0, 0.8  # standard deviations of the logarithm
ANY_SIZE = 0.01
STOCK_LEFT, OTHER_STOCK, POWER_LEFT = 0.8, 0.5, 0.98


def run() -> list[Row]:
    solve(unlimited(2), ROUGH)  # compiles
    return [_measured(models) for models in MODEL_COUNTS]


def _measured(models: int) -> Row:
    problem = limited(models)
    started_s = time.perf_counter()
    solved = solve(problem, LIMITS)
    solution, solve_s = solved.solution, time.perf_counter() - started_s
    whole_gap, whole_s = _whole(problem)
    cost = solution.cost_usd_per_h if solution.cost_usd_per_h is not None else inf
    return {
        "models": models,
        "solve_s": solve_s,
        "gap": (cost - solution.bound) / cost,
        "cost_usd_per_h": cost,
        "bound_usd_per_h": solution.bound,
        "stock_price_usd_per_h": solved.progress.stock_price_usd_per_h,
        "power_price_usd_per_kwh": 1000 * solved.progress.limit_prices[0],
        "nodes": solved.progress.nodes,
        "iterations": solved.progress.rounds,
        "columns": solved.progress.columns,
        "highs_whole_s": whole_s,
        "highs_whole_gap": whole_gap,
    }


def solve(problem: MixProblem, limits: Limits) -> Solved:
    return solve_decomposed(problem, limits=limits, clock_s=time.perf_counter)


def _whole(problem: MixProblem) -> tuple[float, float]:
    model = ilp.cheapest(problem, routes=range(len(problem.routes)))
    started_s = time.perf_counter()
    outcome = run_program(model.program, solver=Solver.HIGHS, limits=LIMITS)
    solve_s = time.perf_counter() - started_s
    if not outcome.status.has_mix:
        return 1.0, solve_s
    cost = problem.cost_usd_per_h(model.counts_of_units())
    return (cost - max(0.0, outcome.bound)) / cost, solve_s


def limited(models: int) -> MixProblem:
    free = unlimited(models)
    used = _gpus_used(free, solve(free, ROUGH))
    supplies = tuple(
        replace(supply, available=_stock(supply, gpus, total=sum(used)))
        for supply, gpus in zip(free.supplies, used, strict=True)
    )
    stocked = replace(free, supplies=supplies)
    watts = {o: option.busy_w for o, option in enumerate(stocked.options)}
    solved = solve(stocked, ROUGH)
    used_w = sum(watts[o] * count for o, count in enumerate(solved.solution.replicas))
    return replace(stocked, limits=(Limit("power", LimitKind.POWER, POWER_LEFT * used_w, replicas=watts),))


def _stock(supply: Supply, gpus: int, *, total: int) -> int:
    left = STOCK_LEFT * gpus if gpus >= 0.1 * total else OTHER_STOCK * total
    return int(-(-left // supply.slots))


def _gpus_used(problem: MixProblem, solved: Solved) -> list[int]:
    if solved.solution.status is SolveStatus.TIME_LIMIT:
        raise RuntimeError("no mix to set the stock by")
    used = [0] * len(problem.supplies)
    for option, count in zip(problem.options, solved.solution.replicas, strict=True):
        used[option.supply] += option.slots * count
    return used


def unlimited(models: int) -> MixProblem:
    """Without stock limits, drawn from a fixed seed; the first workloads are the same whatever their number."""
    supplies = tuple(_supply(gpu) for gpu in SIZES_OF)
    loads: list[Load] = []
    options: list[ReplicaOption] = []
    routes: list[Route] = []
    for w in range(models):
        generator = np.random.default_rng((SEED, w))
        tables = list(_tables(MODELS[w % len(MODELS)], float(generator.choice(TPOT_MS))))
        loads.append(Load(f"m{w}", _rates_rps(generator, tables)))
        for option, max_rps in tables:
            routes.append(Route(option.name, w, (Leg(len(options), max_rps),)))
            options.append(replace(option, name=f"m{w}/{option.name}"))
    return MixProblem(tuple(loads), supplies, tuple(options), tuple(routes))


def _supply(gpu: str) -> Supply:
    gpus = NODE_GPUS if max(SIZES_OF[gpu]) > 1 else 1
    return Supply(gpu, round(cheapest_usd_per_h(gpu) * gpus, 2), slots=gpus)


def _tables(model: str, tpot_ms: float) -> Iterator[tuple[ReplicaOption, tuple[float, ...]]]:
    for supply, (gpu, sizes) in enumerate(SIZES_OF.items()):
        for gpus in sizes:
            watts = gpus * builtin_gpus().get(gpu).rated_w
            yield ReplicaOption(f"{gpu} x{gpus}", gpu, supply, gpus, busy_w=watts), _max_rps(model, gpu, gpus, tpot_ms)


@cache
def _max_rps(model: str, gpu: str, gpus: int, tpot_ms: float) -> tuple[float, ...]:
    slo = Slo(tpot_ms=LatencyLimits(mean=tpot_ms))
    return grid_rates(model, gpu, gpus, slo, inputs=INPUTS, outputs=OUTPUTS)


def _rates_rps(
    generator: np.random.Generator, tables: list[tuple[ReplicaOption, tuple[float, ...]]]
) -> tuple[float, ...]:
    """Per bucket; sizes that no option serves, such as those beyond the model's context, do not occur."""
    rate_rps = exp(generator.uniform(0, log(100)))
    inputs = _between(INPUTS, float(generator.choice(INPUT_MEDIANS)), INPUT_SPREAD)
    outputs = _between(OUTPUTS, float(generator.choice(OUTPUT_MEDIANS)), OUTPUT_SPREAD)
    shares = (1 - ANY_SIZE) * np.outer(inputs, outputs).ravel() + ANY_SIZE / (len(INPUTS) * len(OUTPUTS))
    shares[np.array([max_rps for _, max_rps in tables]).max(axis=0) == 0] = 0
    return tuple(float(share) for share in rate_rps * shares / shares.sum())


def _between(edges: tuple[int, ...], median: float, spread: float) -> npt.NDArray[np.float64]:
    below = [0.5 * (1 + erf(log(edge / median) / (spread * sqrt(2)))) for edge in edges[:-1]]
    return np.diff([0.0, *below, 1.0])
