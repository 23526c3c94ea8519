"""`fleetwright plans`: read the plans that a service stores."""

from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, number
from api.cli.plan.output import print_plan
from api.schemas.plans import PlanRecord, PlanSummary

PLANS: StoredResults[PlanRecord, PlanSummary] = StoredResults(
    name="plan",
    columns=(Column("status", of="status"), number("$/h", decimals=2, of="cost_usd_per_h")),
    has_status=True,
    newest=lambda client, **chosen: client.iter_plans(**chosen),
    read=lambda client, plan_id: client.get_plan(plan_id),
    print_result=lambda record: print_plan(record.plan),
)
plans_app = PLANS.app()
