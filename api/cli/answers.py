"""A plan as people read it: what it costs, what runs, what to hire, why."""

from api.cli.streams import say
from api.cli.tables import Column, Table, number, say_table
from planner import Plan

GAP_SHOWN = 5e-5  # less is 0.00 %

ALLOCATION = (
    Column("workload"),
    Column("option"),
    Column("GPU"),
    number("replicas"),
    number("GPUs each"),
    number("busy %", decimals=1),
    number("nameplate W"),
)
HIRES = (
    Column("hire"),
    number("units"),
    number("GPUs each"),
    number("$/h each", decimals=3),
    number("$/h", decimals=3),
)


def say_plan(plan: Plan) -> None:
    """The whole answer; without a mix only the reasons."""
    if plan.cost_usd_per_h is None:
        say(f"no plan: {plan.status.replace('_', ' ')}")
    else:
        cost = f"{plan.cost_usd_per_h:,.2f} $/h, {_proof(plan)}"
        say(f"{cost}; {plan.power_w:,.0f} W of GPUs; solved in {plan.solve_s:.2f} s\n")
        say_table(_allocation(plan))
        if any(hire.offer for hire in plan.hires):
            say("")
            say_table(_hires(plan))
    say("")
    for line in plan.explanation:
        say(f"- {line}")


def _proof(plan: Plan) -> str:
    if plan.gap is None:
        return "not proven to be the least"
    return "proven the least" if plan.gap < GAP_SHOWN else f"proven within {plan.gap:.2%} of the least"


def _allocation(plan: Plan) -> Table:
    return Table(
        ALLOCATION,
        (
            (
                entry.workload,
                entry.option,
                entry.gpu,
                entry.count,
                entry.gpus_per_replica,
                entry.busy * 100,
                entry.power_w,
            )
            for entry in plan.allocation
        ),
    )


def _hires(plan: Plan) -> Table:
    return Table(
        HIRES,
        ((hire.name, hire.units, hire.gpus_per_unit, hire.price_usd_per_h, hire.cost_usd_per_h) for hire in plan.hires),
    )
