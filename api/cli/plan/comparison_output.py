"""Prints comparisons, explanations and replays of stored plans."""

from api.cli.common.console import print_line
from api.cli.common.tables import Column, Table, format_value, number, print_table, table_of
from api.schemas.plans import CatalogueVersion, PlanExplanation, StoredPlanReplay
from planner.comparison import Change, PlanComparison

FIGURES = (
    Column("figure"),
    number("before", decimals=2),
    number("after", decimals=2),
    Column("change", show=lambda value: f"{value:+,.2f}", right=True),
)
MIX = (
    Column("workload", of="workload"),
    Column("option", of="option"),
    Column("GPU", of="gpu"),
    number("before", of="before"),
    number("after", of="after"),
    Column("change", show=lambda value: f"{value:+,}", right=True, of=lambda each: each.after - each.before),
)
LATENCIES = (
    Column("workload", of="workload"),
    Column("limit", of=lambda each: f"{each.statistic} {each.metric.name}"),
    number("limit ms", decimals=1, of=lambda each: _either(each.limit_ms)),
    number("before ms", decimals=1, of="measured_ms.before"),
    number("after ms", decimals=1, of="measured_ms.after"),
    Column("held before", show=format_value, of="holds_before"),
    Column("held after", show=format_value, of="holds_after"),
)
ROUTES = (
    Column("workload", of="workload"),
    Column("route of the requests", of="route"),
    Column("before", show=lambda value: f"{value:.1%}", right=True, of="before"),
    Column("after", show=lambda value: f"{value:.1%}", right=True, of="after"),
)
FIELDS = (Column("field of the request", of="path"), Column("before", of="before"), Column("after", of="after"))
LIMITS = (
    Column("workload", of=lambda pair: pair[0].workload),
    Column("limit", of=lambda pair: f"{pair[1].statistic} {pair[1].metric.name}"),
    number("limit ms", decimals=1, of=lambda pair: pair[1].limit_ms),
    number("measured ms", decimals=1, of=lambda pair: pair[1].measured_ms),
    Column("held", show=format_value, of=lambda pair: pair[1].holds),
    number("requests", of=lambda pair: pair[1].requests),
)


def print_comparison(found: PlanComparison) -> None:
    """Print the figures, and a table for each part that differs."""
    if found.status_before is not found.status_after:
        print_line(f"status: {found.status_before} before, {found.status_after} after\n")
    rows = [
        ("$/h", found.cost_usd_per_h),
        ("kW", _scaled(found.power_w, 1e-3)),
        ("replicas", found.replicas),
        ("GPUs", found.gpus),
        ("nearest limit %", _scaled(found.nearest_limit, 100)),
    ]
    print_table(Table(FIGURES, [(name, each.before, each.after, each.difference) for name, each in rows]))
    changed = [each for each in found.mix if each.before != each.after]
    for columns, items in (
        (MIX, changed),
        (LATENCIES, found.latencies),
        (ROUTES, found.routes if found.routing else ()),
        (FIELDS, found.request),
    ):
        if items:
            print_line("")
            print_table(table_of(columns, items))
    if not changed:
        print_line("\nthe mix is the same")


def print_explanation(found: PlanExplanation) -> None:
    """Print the explanation, after what makes it differ from the plan."""
    _print_inputs(found.inputs)
    if not found.same_mix:
        print_line("the explained mix is not that of the plan: solving its request gave another one\n")
    for line in found.explanation.lines:
        print_line(f"- {line}")
    if found.cut:
        print_line(f"\nthe time limit cut short: {', '.join(found.cut)}")


def print_replay(found: StoredPlanReplay) -> None:
    """Print each limit with what the replay measured."""
    _print_inputs(found.inputs)
    replay = found.replay
    if replay.obstacle is not None:
        print_line(f"not replayed: {replay.obstacle}")
        return
    limits = [(proof, limit) for proof in replay.proofs for limit in proof.slo_check.limits]
    if limits:
        print_table(table_of(LIMITS, limits))
        print_line("")
    for proof in replay.proofs:
        for loss in proof.losses:
            broken = "; ".join(map(str, loss.broken)) or "the remaining replicas cannot serve every size"
            print_line(f"{proof.workload}: without {loss.name} {'every limit holds' if loss.verified else broken}")
        for note in proof.slo_check.notes:
            print_line(f"{proof.workload}: {note}")
    for name in replay.not_replayed:
        print_line(f"{name}: not replayed: the time limit expired")
    result = {True: "every limit holds", False: "a limit breaks", None: "not known: the time limit expired"}
    print_line(f"{found.hours:g} h of requests, seed {found.seed}: {result[replay.verified]}")


def _print_inputs(inputs: tuple[CatalogueVersion, ...]) -> None:
    for each in inputs:
        if not each.is_as_planned:
            planned = "not recorded" if each.planned is None else f"version {each.planned}"
            print_line(f"{each.catalogue}: planned with {planned}, used version {each.used}: results may differ")


def _scaled(change: Change, factor: float) -> Change:
    return Change.of(*(None if value is None else value * factor for value in (change.before, change.after)))


def _either(change: Change) -> float | None:
    return change.after if change.after is not None else change.before
