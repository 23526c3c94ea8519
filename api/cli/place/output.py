"""Prints a placement: its figures beside those of the current placement and the bound."""

from collections.abc import Iterator

from api.cli.common.console import print_line
from api.cli.common.tables import Column, Table, number, print_table
from placement.document import EvenLoadSlots, Moves, Placement
from placement.options import Method

COLUMNS = (
    Column(""),
    number("imbalance", decimals=4),
    number("worst layer", decimals=3),
    number("remote nodes", decimals=3),
)
GIGABYTE = 1e9
TO_THE_UNIT = 100
PROVEN = 2e-6  # relative: the tolerance of the solvers


def print_placement(placement: Placement) -> None:
    before, found, bound = placement.predictions.before, placement.imbalance, placement.bound
    print_line(f"{_shape(placement)}; solved in {placement.solve_s:.2f} s\n")
    rows = [
        (f"before: {before.what}", before.imbalance.mean, before.imbalance.max, before.remote_nodes_per_token),
        ("after", found.mean, found.max, placement.remote_nodes_per_token),
        ("bound", bound.mean, bound.max, None),
    ]
    print_table(Table(COLUMNS, rows))
    print_line("")
    for line in _remarks(placement):
        print_line(f"- {line}")


def _shape(placement: Placement) -> str:
    shape = f"{len(placement.layers)} layers of {placement.experts} experts"
    where = f"{placement.slots} slots on {placement.gpus} GPUs of {placement.nodes} nodes"
    return f"{f'{placement.model}: ' if placement.model else ''}{shape} in {where}"


def _remarks(placement: Placement) -> Iterator[str]:
    if placement.method is Method.EXACT and placement.gap is not None:
        proven = "the optimum" if placement.gap <= PROVEN else f"at most {placement.gap:.2%} above the optimum"
        yield f"proven by integer programs: the mean imbalance is {proven}"
    for rule, mean in placement.predictions.imbalance_by_rule.items():
        if rule is not placement.dispatch:
            yield f"planned for {placement.dispatch} dispatch; with {rule} dispatch the mean is {mean:.4f}"
    if (drawn := placement.predictions.engine_imbalance) is not None and placement.engine is None:
        yield f"with the draws of SGLang 0.5.23 the mean is {drawn.mean:.4f}; --engine sglang plans for them"
    if (traffic := placement.remote_nodes) is not None and traffic.source == "modelled":
        yield f"remote nodes are of {traffic.trace_tokens:,} modelled tokens: record a trace for real figures"
    if (traffic := placement.remote_nodes) is not None and traffic.cost_per_token is not None:
        before = placement.predictions.before.cost_per_token
        was = "" if before is None else f", {before:.3f} before"
        yield f"weighted by link costs: {traffic.cost_per_token:.3f} per token{was}"
    if placement.moved_copies is not None:
        total = placement.slots * len(placement.layers)
        taking = "" if placement.moves is None else f": {moves_text(placement.moves)}"
        yield f"{placement.moved_copies:,} of {total:,} copies move ({placement.moved_copies / total:.1%}){taking}"
    if (more := placement.predictions.redundancy) is not None:
        yield _advice(placement, more)


def moves_text(moves: Moves) -> str:
    size_gb, batches = moves.bytes / GIGABYTE, len(moves.batches)
    return f"{_short(size_gb)} GB, {_short(moves.duration_s)} s in {batches:,} batches"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= TO_THE_UNIT else f"{value:.3g}"


def _advice(placement: Placement, more: EvenLoadSlots) -> str:
    memory = "" if more.fp8_bytes_per_gpu is None else f" ({more.fp8_bytes_per_gpu / GIGABYTE:.1f} GB per GPU in FP8)"
    return (
        f"no placement in {placement.slots} slots can be below {placement.bound.mean:.4f}: "
        f"with {more.slots} slots{memory}, the bound is {more.bound_mean:.4f}"
    )
