"""`fleetwright power simulations`: read the simulated rows that a service stores."""

from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, format_value, number
from api.cli.power.simulate_output import print_row
from api.schemas.power import SimulationRecord, SimulationSummary

POWER_SIMULATIONS: StoredResults[SimulationRecord, SimulationSummary] = StoredResults(
    name="power simulation",
    columns=(
        ("servers", number("servers")),
        ("budget_w", number("budget W")),
        ("policy", Column("policy")),
        ("days", number("days", decimals=2)),
        ("seed", number("seed")),
        ("brakes", number("brakes")),
        ("peak_utilization", number("peak", decimals=4)),
        ("slo_held", Column("SLO held", show=format_value)),
    ),
    newest=lambda client: client.iter_power_simulations(),
    read=lambda client, simulation_id: client.get_power_simulation(simulation_id),
    print_result=lambda record: print_row(record.simulation),
)
app = POWER_SIMULATIONS.app()
