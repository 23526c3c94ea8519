"""`fleetwright plan`: find the cheapest GPUs, locally or with a service."""

import time
from datetime import UTC, datetime
from pathlib import Path

import typer

from api.cli.catalogues.kinds import known_gpus
from api.cli.common.errors import EXIT_BAD_INPUT, EXIT_NEGATIVE, CommandError
from api.cli.common.files import locate_errors, read_document
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import AskUrlOption, FileArgument, GpusOption, TokenFileOption
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.plan.context import (
    ExplainOption,
    ModelsOption,
    OffersOption,
    ProfilesOption,
    planned,
    planning_context,
    with_profiles,
)
from api.cli.plan.file_references import with_files
from api.cli.plan.output import print_plan
from fleet.documents import Document, read_model
from fleet.documents import Path as Place
from fleet.offers import PriceSheet
from planner import Plan, PlanRequest

app = new_app()


@app.command()
def plan(
    file: FileArgument,
    gpus: GpusOption = None,
    models: ModelsOption = None,
    offers: OffersOption = None,
    profiles: ProfilesOption = None,
    explain: ExplainOption = None,
    url: AskUrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Find the cheapest GPUs that serve a load.

    FILE is the request: workloads, request sizes and SLOs.  For an infeasible request the output explains why, and the
    exit code is 1.  With --url a service plans with its own catalogues and stores the plan; --format json then prints
    the stored record with its id.
    """
    if url is not None and (gpus or models or offers):
        message = "--gpus, --models and --offers are local, --url (or FLEETWRIGHT_URL) uses a service: give one of them"
        raise CommandError(message, exit_code=EXIT_BAD_INPUT)
    question = with_files(read_document(file), file)
    request = with_profiles(read_model(question, PlanRequest), profiles, gpus=known_gpus(gpus))
    if explain is not None:
        request = request.explained(explain)
    if url is None:
        answer = _solve(question, request, gpus=gpus, models=models, offers=offers)
        _print(answer, output)
    else:
        answer = _plan_remotely(request, url, token_file, output)
    if answer.cost_usd_per_h is None:
        raise typer.Exit(EXIT_NEGATIVE)


def _solve(
    question: Document, request: PlanRequest, *, gpus: Path | None, models: Path | None, offers: Path | None
) -> Plan:
    if offers is not None and request.offers is not None:
        raise CommandError("--offers: the request has its own offers: give one of them", exit_code=EXIT_BAD_INPUT)
    sheet = None if offers is None else read_document(offers)
    prices = None if sheet is None else read_model(sheet, PriceSheet)
    world = planning_context(gpus=known_gpus(gpus), models=models, prices=prices)

    def document_of(place: Place) -> Document:
        return sheet if sheet is not None and place[:1] == ("offers",) else question

    with locate_errors(document_of):
        return planned(request, world, now=datetime.now(UTC), clock_s=time.perf_counter)


def _plan_remotely(request: PlanRequest, url: str, token_file: Path | None, output: Format) -> Plan:
    from api.cli.common.remote import connect  # noqa: PLC0415 - its client costs more than most answers given here
    from api.cli.plan.plans import PLANS  # noqa: PLC0415 - as above

    with connect(url, token_file) as client:
        record = client.create_plan(request)
    PLANS.print_record(record, output)
    return record.plan


def _print(answer: Plan, output: Format) -> None:
    if output is Format.JSON:
        print_json(answer)
    else:
        print_plan(answer)
