"""`fleetwright power plans` and `simulations`: read the power plans and simulated rows that a service stores."""

from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, format_value, number
from api.cli.power.plan_output import print_caps
from api.cli.power.simulate_output import print_row
from api.schemas.power import CapPlanRecord, CapPlanSummary, SimulationRecord, SimulationSummary

POWER_PLANS: StoredResults[CapPlanRecord, CapPlanSummary] = StoredResults(
    name="power plan",
    columns=(
        Column("tree", of="tree"),
        number("version", of="tree_version"),
        Column("risk", show=lambda value: f"{value:g}", right=True, of="risk"),
        Column("status", of="status"),
        number("loss", decimals=3, of="loss"),
        Column("dearest feed", of="binding"),
    ),
    has_status=True,
    newest=lambda client, **chosen: client.iter_power_plans(**chosen),
    read=lambda client, plan_id: client.get_power_plan(plan_id),
    print_result=lambda record: print_caps(record.plan),
)
POWER_SIMULATIONS: StoredResults[SimulationRecord, SimulationSummary] = StoredResults(
    name="power simulation",
    columns=(
        number("servers", of="servers"),
        number("budget W", of="budget_w"),
        Column("policy", of="policy"),
        number("days", decimals=2, of="days"),
        number("seed", of="seed"),
        number("brakes", of="brakes"),
        number("peak", decimals=4, of="peak_utilization"),
        Column("SLO held", show=format_value, of="slo_held"),
    ),
    newest=lambda client, **chosen: client.iter_power_simulations(**chosen),
    read=lambda client, simulation_id: client.get_power_simulation(simulation_id),
    print_result=lambda record: print_row(record.simulation),
)
plans_app = POWER_PLANS.app()
simulations_app = POWER_SIMULATIONS.app()
