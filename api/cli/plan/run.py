"""`fleetwright plan`: find the cheapest GPUs, locally or with a service."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from api.cli.catalogues.kinds import known_gpus
from api.cli.common.errors import EXIT_NEGATIVE, InputError
from api.cli.common.files import locate_errors, read_document
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import FileArgument, GpusOption, LocalOrProjectOptions, RemoteOptions
from api.cli.common.progress import record_of
from api.cli.common.result_options import NamingOptions
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
from api.cli.plan.stored import PLANS
from fleet.documents import Document, read_model
from fleet.documents import Path as Place
from fleet.offers import PriceSheet
from planner import Plan, PlanRequest

app = new_app()


@app.command()
def plan(
    service: LocalOrProjectOptions,
    naming: NamingOptions,
    file: FileArgument,
    gpus: GpusOption = None,
    models: ModelsOption = None,
    offers: OffersOption = None,
    profiles: ProfilesOption = None,
    explain: ExplainOption = None,
) -> None:
    """Find the cheapest GPUs that serve a load.

    FILE is the request: workloads, request sizes and SLOs.  For an infeasible request the output explains why, and the
    exit code is 1.  With --url a service plans with its own catalogues and stores the plan; --format json then prints
    the stored record with its id.  `fleetwright plan export` writes a plan as engine flags or manifests.
    """
    stored_as = naming.of(service.url)
    if service.url is not None and (gpus or models or offers):
        message = "--gpus, --models and --offers are local, --url (or FLEETWRIGHT_URL) uses a service: give one of them"
        raise InputError(message)
    document = with_files(read_document(file), file)
    request = with_profiles(read_model(document, PlanRequest), profiles, gpus=known_gpus(gpus))
    if explain is not None:
        request = request.explained(explain)
    if service.url is None:
        result = _solve(document, request, gpus=gpus, models=models, offers=offers)
        if not service.printed(result):
            print_plan(result)
    else:
        result = _plan_remotely(request, service, stored_as)
    if result.cost_usd_per_h is None:
        raise typer.Exit(EXIT_NEGATIVE)


def _solve(
    document: Document, request: PlanRequest, *, gpus: Path | None, models: Path | None, offers: Path | None
) -> Plan:
    if offers is not None and request.offers is not None:
        raise InputError("--offers: the request has its own offers: give one of them")
    sheet = None if offers is None else read_document(offers)
    prices = None if sheet is None else read_model(sheet, PriceSheet)
    world = planning_context(gpus=known_gpus(gpus), models=models, prices=prices)

    def document_of(place: Place) -> Document:
        return sheet if sheet is not None and place[:1] == ("offers",) else document

    with locate_errors(document_of):
        return planned(request, world, now=datetime.now(UTC), clock_s=time.perf_counter)


def _plan_remotely(request: PlanRequest, service: RemoteOptions, stored_as: Mapping[str, Any]) -> Plan:
    with service.connect() as client:
        record = record_of(client, client.submit_plan(request, **stored_as), read=client.get_plan)
    PLANS.print_record(record, service)
    return record.plan
