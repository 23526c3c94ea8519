"""`fleetwright faults simulations`: read the fault simulations that a service stores."""

from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, number
from api.cli.faults.simulate_output import print_score
from api.schemas.faults import FaultSimulationRecord, FaultSimulationSummary

FAULT_SIMULATIONS: StoredResults[FaultSimulationRecord, FaultSimulationSummary] = StoredResults(
    name="fault simulation",
    columns=(
        ("ranks", number("ranks")),
        ("hours", number("hours", decimals=2)),
        ("scenario", Column("scenario")),
        ("seed", number("seed")),
        ("faults", number("faults")),
        ("recall", Column("recall", show=lambda value: f"{value:.1%}", right=True)),
        ("precision", Column("precision", show=lambda value: f"{value:.1%}", right=True)),
        ("false_isolations", number("false isolations")),
    ),
    newest=lambda client: client.iter_fault_simulations(),
    read=lambda client, simulation_id: client.get_fault_simulation(simulation_id),
    print_result=lambda record: print_score(record.simulation),
)
app = FAULT_SIMULATIONS.app()
