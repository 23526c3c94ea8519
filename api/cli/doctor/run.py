"""`fleetwright doctor`: check an installation from this machine."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import stamina
import typer

from api.cli.common.errors import EXIT_NEGATIVE
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import RemoteOptions
from api.cli.common.remote import client_errors, read_token
from api.cli.common.tables import Column, print_table, table_of
from api.cli.doctor import cluster_checks, database_checks, machine_checks, service_checks
from api.cli.doctor.findings import Finding, Outcome, failure, run_checks, skipped
from api.cli.serve.database import read_settings
from api.client import AsyncClient
from api.server import Settings
from api.store import Store, StoreError, database_file
from deploy.common.kubernetes_client import KubernetesAccess
from fleet.errors import DocumentError

DATABASE_URL = "FLEETWRIGHT_DATABASE_URL"
COLUMNS = (
    Column("check", of="check"),
    Column("outcome", of="outcome"),
    Column("detail", of="detail"),
    Column("repair", of="repair"),
)

app = new_app()


@app.command()
def doctor(
    service: RemoteOptions,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check the rights in this cluster; else in the pod's.")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Of RayClusters; repeatable; else the pod's.")
    ] = None,
) -> None:
    """Check an installation, and print what is wrong and its repair.

    Checks this machine and the database of FLEETWRIGHT_DATABASE_URL; with --url a service, and the database only where
    the variable is set.  Exits with 1 after a failure; a warning is none.
    """
    stamina.instrumentation.set_on_retry_hooks([])
    cluster = cluster_checks.Cluster(
        KubernetesAccess(kubeconfig=kubeconfig),
        tuple(namespace or ()),
        reviews_tokens=os.environ.get("FLEETWRIGHT_KUBERNETES_TOKENS", "").lower() in {"1", "true"},
    )
    findings = asyncio.run(_findings(service, cluster))
    if not service.printed(findings):
        print_table(table_of(COLUMNS, findings))
    if any(found.outcome is Outcome.FAILURE for found in findings):
        raise typer.Exit(EXIT_NEGATIVE)


async def _findings(service: RemoteOptions, cluster: cluster_checks.Cluster) -> list[Finding]:
    now = datetime.now(UTC)
    found = []
    if service.url is None or DATABASE_URL in os.environ:
        found += [finding async for finding in _of_installation(now)]
    if service.url is not None:
        found += [finding async for finding in _of_service(service.url, service.token_file, now)]
    else:
        found.append(skipped("--url names no service").model_copy(update={"check": "service"}))
    found += [
        finding
        async for finding in run_checks(
            cluster_checks.CHECKS, cluster, repair="check the address and the credentials of the cluster"
        )
    ]
    return found


async def _of_installation(now: datetime) -> AsyncIterator[Finding]:
    try:
        settings = read_settings()
    except DocumentError as error:
        for problem in error.problems:
            wrong = failure(str(problem), repair="correct the environment variable")
            yield wrong.model_copy(update={"check": "settings"})
        return
    machine = machine_checks.Machine(settings, now)
    async for finding in run_checks(machine_checks.CHECKS, machine, repair="check this machine"):
        yield finding
    async for finding in _of_database(settings, now):
        yield finding


async def _of_database(settings: Settings, now: datetime) -> AsyncIterator[Finding]:
    """Check the database; nothing more where its schema is not the one that the checks read."""
    url = settings.database_url.get_secret_value()
    file = database_file(url)
    if file is not None and not file.is_file():  # to open it would create it
        missing = failure(f"there is no file {file}", repair="run `fleetwright serve` or `fleetwright migrate up`")
        yield missing.model_copy(update={"check": "database-schema"})
        return
    try:
        store = Store(url)
    except StoreError as error:
        yield failure(str(error), repair=f"correct {DATABASE_URL}").model_copy(update={"check": "database-schema"})
        return
    try:
        database = database_checks.Database(settings, store, now)
        repair = "check the address, the role and the log of the database"
        async for finding in run_checks(database_checks.CHECKS, database, repair=repair):
            yield finding
            if finding.check == "database-schema" and finding.outcome is Outcome.FAILURE:
                return
    finally:
        await store.close()


async def _of_service(url: str, token_file: Path | None, now: datetime) -> AsyncIterator[Finding]:
    with client_errors(url):
        token = read_token(token_file)
        async with AsyncClient(url, token=token) as client:
            subject = service_checks.Service(url, client, token is not None, now)
            repair = "check the URL, the network and the log of the service"
            async for finding in run_checks(service_checks.CHECKS, subject, repair=repair):
                yield finding
