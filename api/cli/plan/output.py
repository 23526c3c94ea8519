import shlex
from collections.abc import Sequence

from api.cli.common.console import print_line
from api.cli.common.tables import Column, Table, number, print_table, table_of
from planner import Plan
from planner.engine_flags import ServingEngine
from planner.rollout_planner import Count
from planner.schedule import Schedule

GAP_SHOWN = 5e-5  # a smaller gap prints as 0.00 %

ALLOCATION = (
    Column("workload", of="workload"),
    Column("option", of="option"),
    Column("GPU", of="gpu"),
    number("replicas", of="count"),
    number("GPUs each", of="gpus_per_replica"),
    number("busy %", decimals=1, of=lambda entry: entry.busy * 100),
    number("W", of="power_w"),
)
HIRES = (
    Column("hire", of="name"),
    number("units", of="units"),
    number("GPUs each", of="gpus_per_unit"),
    number("$/h each", decimals=3, of="price_usd_per_h"),
    number("$/h", decimals=3, of="cost_usd_per_h"),
)
POWER = (
    Column("power domain", of="name"),
    number("limit W", of="limit_w"),
    number("planned W", of="planned_w"),
    number("$/h per kW more", decimals=3, of="usd_per_kw_h"),
)
MOVES = (
    number("wave"),
    Column("step"),
    Column("replicas"),
    number("minutes", decimals=1),
    number("extra $", decimals=2),
)
PERIODS = (
    number("hour", decimals=2),
    number("req/s", decimals=2),
    Column("serve"),
    Column("start"),
    Column("stop"),
)


def print_plan(plan: Plan) -> None:
    """Print the plan; without a mix only the explanation."""
    if plan.cost_usd_per_h is None:
        print_line(f"no plan: {plan.status.replace('_', ' ')}")
    else:
        cost = f"{plan.cost_usd_per_h:,.2f} $/h, {_proof(plan)}"
        print_line(f"{cost}{_replayed(plan)}; {_power_w(plan)}; solved in {plan.solve_s:.2f} s{_explained(plan)}\n")
        print_table(table_of(ALLOCATION, plan.allocation))
        if any(hire.offer for hire in plan.hires):
            print_line("")
            print_table(table_of(HIRES, plan.hires))
        if plan.power_domains:
            print_line("")
            print_table(table_of(POWER, plan.power_domains))
        _print_moves(plan)
        _print_timetable(plan)
        _print_engine_flags(plan)
    if plan.cut:
        print_line(f"\nthe time limit cut short: {', '.join(plan.cut)}")
    print_line("")
    for line in plan.explanation:
        print_line(f"- {line}")


def _print_engine_flags(plan: Plan) -> None:
    """Print how to start a replica of each option with vLLM; JSON has the flags of every engine."""
    known = {each.option: each.engine_flags[ServingEngine.VLLM] for each in plan.allocation if each.engine_flags}
    for position, (option, found) in enumerate(known.items()):
        if position == 0:
            print_line(f"\nvLLM {found.version} (`fleetwright plan export` writes files, also of other engines):")
        print_line(f"  {option}: {shlex.join([*found.command, *found.flags])}")


def _power_w(plan: Plan) -> str:
    return "power not known" if plan.power_w is None else f"{plan.power_w:,.0f} W"


def _explained(plan: Plan) -> str:
    return f", explained in {plan.explain_s:.2f} s" if plan.explanation else ""


def _proof(plan: Plan) -> str:
    if plan.gap is None:
        return "not proven to be the least"
    if not plan.goal.is_price_only:
        return f"best in {plan.goal} within {plan.gap:.2%} (proven)"
    used = {proof.utilisation for proof in plan.proofs} - {1.0}
    at = f" at {', '.join(f'{share:.0%}' for share in sorted(used))} of the rates" if used else ""
    return f"proven the least{at}" if plan.gap < GAP_SHOWN else f"proven within {plan.gap:.2%} of the least"


def _replayed(plan: Plan) -> str:
    if plan.verified is None:
        return ""
    return ", verified by replay" if plan.verified else ", NOT verified: a limit breaks in the replay"


def _print_moves(plan: Plan) -> None:
    if plan.moves is None:
        return
    print_line("")
    if not plan.moves.steps:
        print_line(f"moves: {plan.moves.reason}")
        return
    steps = plan.moves.steps
    rows = [(m.wave, m.action, _counted(plan, m.replicas), m.minutes, m.temporary_usd) for m in steps]
    print_table(Table(MOVES, rows))


def _print_timetable(plan: Plan) -> None:
    if plan.timetable is None:
        return
    table = plan.timetable
    print_line("")
    if table.total_usd is None:
        print_line(f"no timetable: {table.reason or table.status}")
        _print_notes(table)
        return
    saving = f", {table.saving:.1%} less than the peak's mix all the time" if table.saving is not None else ""
    print_line(f"period by period: {table.total_usd:,.2f} $, at most {table.gap or 0.0:.2%} above the least{saving}")
    for offer, units in table.committed.items():
        print_line(f"reserve {units} x {offer}")
    print_line("")
    rows = (
        (
            period.start_h,
            sum(period.rate_rps.values()),
            *(_counted(plan, counts) for counts in (period.running, period.started, period.stopped)),
        )
        for period in table.periods
    )
    print_table(Table(PERIODS, list(rows)))
    _print_notes(table)


def _print_notes(table: Schedule) -> None:
    for note in table.notes:
        print_line(f"note: {note}")


def _counted(plan: Plan, counts: Sequence[Count]) -> str | None:
    """Format counts of options, with the workload where the plan has several."""
    several = len(plan.routing) > 1
    named = (f"{f'{count.workload}: ' if several else ''}{count.replicas} x {count.option}" for count in counts)
    return ", ".join(named) or None
