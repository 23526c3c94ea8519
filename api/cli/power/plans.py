"""`fleetwright power plans`: read the power plans that a service stores."""

from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, number
from api.cli.power.plan_output import print_caps
from api.schemas.power import CapPlanRecord, CapPlanSummary

POWER_PLANS: StoredResults[CapPlanRecord, CapPlanSummary] = StoredResults(
    name="power plan",
    columns=(
        ("tree", Column("tree")),
        ("tree_version", number("version")),
        ("risk", Column("risk", show=lambda value: f"{value:g}", right=True)),
        ("status", Column("status")),
        ("loss", number("loss", decimals=3)),
        ("binding", Column("dearest feed")),
    ),
    newest=lambda client: client.iter_power_plans(),
    read=lambda client, plan_id: client.get_power_plan(plan_id),
    print_result=lambda record: print_caps(record.plan),
)
app = POWER_PLANS.app()
