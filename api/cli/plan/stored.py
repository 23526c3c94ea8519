"""`fleetwright plans list|show|compare|explain|replay|watch`: the plans that a service stores."""

from typing import Annotated

import typer

from api.cli.common.errors import EXIT_NEGATIVE
from api.cli.common.files import build_model
from api.cli.common.options import RemoteOptions
from api.cli.common.progress import finished, follow, result_of
from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, number
from api.cli.plan.comparison_output import print_comparison, print_explanation, print_replay
from api.cli.plan.output import print_plan
from api.cli.plan.watch import watch_plans
from api.schemas.plans import REPLAYING_S, ExplanationRequest, PlanRecord, PlanReplayRequest, PlanSummary
from planner.policy import ExplainLevel

PLANS: StoredResults[PlanRecord, PlanSummary] = StoredResults(
    name="plan",
    columns=(Column("status", of="status"), number("$/h", decimals=2, of="cost_usd_per_h")),
    has_status=True,
    newest=lambda client, **chosen: client.iter_plans(**chosen),
    read=lambda client, plan_id: client.get_plan(plan_id),
    print_result=lambda record: print_plan(record.plan),
)
plans_app = PLANS.app()
PlanArgument = Annotated[str, typer.Argument(metavar="ID", help="As `list` prints it.")]


@plans_app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="Id of the plan before the change.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Id of the plan after it.")],
    service: RemoteOptions,
) -> None:
    """Compare two plans: cost, power, mix, latencies, routing and requests."""
    from api.client import plan_operations  # noqa: PLC0415 - loads httpx

    with service.connect() as client:
        found = result_of(client, plan_operations.compare_plans(before, after))
    if not service.printed(found):
        print_comparison(found)


@plans_app.command()
def explain(
    plan_id: PlanArgument,
    service: RemoteOptions,
    level: Annotated[ExplainLevel, typer.Option("--level", help="How much to explain: short or full.")] = (
        ExplainLevel.FULL
    ),
    time_limit_s: Annotated[
        float | None, typer.Option("--time-limit-s", metavar="SECONDS", help="Else that of the plan's request.")
    ] = None,
) -> None:
    """Solve the request of a plan again, with the catalogues of that time, and explain it."""
    from api.client import plan_operations  # noqa: PLC0415 - as above

    request = build_model(ExplanationRequest, "explanation", level=level, time_limit_s=time_limit_s)
    with service.connect() as client:
        found = result_of(client, plan_operations.explain_plan(plan_id, request))
    if not service.printed(found):
        print_explanation(found)


@plans_app.command()
def replay(
    plan_id: PlanArgument,
    service: RemoteOptions,
    hours: Annotated[float, typer.Option(metavar="H", help="Hours of traffic; a demand series is whole.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of the drawn requests.")] = 0,
    time_limit_s: Annotated[
        float, typer.Option("--time-limit-s", metavar="SECONDS", help="No replay begins after it.")
    ] = REPLAYING_S,
) -> None:
    """Replay simulated requests over a plan, and check its SLOs; exit code 1 unless every limit holds."""
    from api.client import plan_operations  # noqa: PLC0415 - as above

    request = build_model(PlanReplayRequest, "replay", hours=hours, seed=seed, time_limit_s=time_limit_s)
    with service.connect() as client:
        found = result_of(client, plan_operations.replay_plan(plan_id, request))
    if not service.printed(found):
        print_replay(found)
    if not found.replay.verified:
        raise typer.Exit(EXIT_NEGATIVE)


@plans_app.command()
def watch(
    service: RemoteOptions,
    plan_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Follow this plan to its end; else all new plans.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", min=1, help="End after so many plans; else at Ctrl-C.")
    ] = None,
) -> None:
    """Follow one plan until it is solved and print it, or print each plan as it ends."""
    with service.connect() as client:
        if plan_id is None:
            watch_plans(client, service.output, most=most)
            return
        finished(follow(client, client.get_job(plan_id), cancels=False))
        record = client.get_plan(plan_id)
    PLANS.print_record(record, service)
