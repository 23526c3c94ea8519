"""`fleetwright controller plan`: show what a controller would write, without writing it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from api.cli.common.console import note, print_line
from api.cli.common.errors import input_errors
from api.cli.common.options import LogLevel, RemoteOptions
from api.cli.common.remote import client_errors, read_token
from api.cli.common.tables import Column, Table, number, print_table
from api.cli.targets.changes import COLUMNS as CHANGE_COLUMNS
from api.cli.targets.changes import ChangeRow, change_rows
from api.client import AsyncClient
from api.client.transport import DEFAULT_URL
from api.schemas.pages import PAGE_LIMIT_MAX
from api.schemas.target_hosts import CLUSTER_HOSTS, TARGET_HOSTS_VARIABLE, AllowedHosts
from deploy.actuators.registry import Actuators, reachable_actuators
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess
from deploy.common.logs import configure_logs
from deploy.common.target_http import target_client
from deploy.common.topology_discovery import UnusableSourceError
from deploy.controller.controller import DryRun, dry_run
from deploy.controller.prometheus_health import prometheus_health
from deploy.controller.reconcile import ControllerSettings
from fleet.errors import DocumentError

KubernetesOption = Annotated[
    bool, typer.Option("--kubernetes", help="Drive targets on Kubernetes too, on the cluster that kubectl would use.")
]
KubeconfigOption = Annotated[Path | None, typer.Option(metavar="FILE", help="--kubernetes, with this kubeconfig.")]
TargetHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target-host",
        metavar="HOST",
        envvar=TARGET_HOSTS_VARIABLE,
        help="Host that targets may name: a name, a suffix such as .svc, an address or a network; repeatable.",
        show_default=" ".join(CLUSTER_HOSTS),
    ),
]

COLUMNS = (
    Column("target"),
    Column("mode"),
    Column("phase"),
    *CHANGE_COLUMNS,
    number("next reconcile"),
)


def plan(
    service: RemoteOptions,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Targets; none: all.")] = None,
    kubernetes: KubernetesOption = False,
    kubeconfig: KubeconfigOption = None,
    target_host: TargetHostOption = None,
) -> None:
    """Show the change set of every target, and the writes of the next reconcile.  Writes nothing."""
    configure_logs(level=LogLevel.ERROR)
    access = kubernetes_access(kubernetes=kubernetes, kubeconfig=kubeconfig)
    found = asyncio.run(_dry_run(names or [], service, access, allowed_hosts(target_host)))
    if service.printed({"targets": [_json(each) for each in found]}):
        return
    print_table(Table(COLUMNS, (row for each in found for row in _rows(each))))
    for each in found:
        if each.status.message is not None:
            note(f"{each.target.name}: {each.status.message}")
    if not any(change_rows(each.status) for each in found):
        print_line("nothing to change")


def allowed_hosts(given: list[str] | None) -> AllowedHosts:
    with input_errors(DocumentError):
        return AllowedHosts.parse(given or CLUSTER_HOSTS)


def kubernetes_access(*, kubernetes: bool, kubeconfig: Path | None) -> KubernetesAccess | None:
    """Return None where neither option is given."""
    return KubernetesAccess(kubeconfig=kubeconfig) if kubernetes or kubeconfig else None


@asynccontextmanager
async def usable_actuators(http: httpx.AsyncClient, access: KubernetesAccess | None) -> AsyncIterator[Actuators]:
    """Yield the actuators that this process can reach; CommandError where Kubernetes is requested but unreachable."""
    with input_errors(UnusableSourceError):
        async with reachable_actuators(http, kubernetes=access) as actuators:
            yield actuators


async def _dry_run(
    names: list[str], service: RemoteOptions, access: KubernetesAccess | None, allowed: AllowedHosts
) -> list[DryRun]:
    clock, url = Clock(), service.url or DEFAULT_URL
    with client_errors(url):
        async with (
            AsyncClient(url, token=read_token(service.token_file)) as api,
            target_client(allowed) as http,
            usable_actuators(http, access) as actuators,
            prometheus_health(allowed=allowed, now=clock.now) as health,
        ):
            if names:
                targets = [(await api.get_target(name)).document for name in names]
            else:
                targets = [target async for target in api.iter_targets(limit=PAGE_LIMIT_MAX)]
            settings = ControllerSettings()
            return await dry_run(
                targets, api=api, actuators=actuators, http=http, health=health, settings=settings, clock=clock
            )


def _rows(found: DryRun) -> Iterator[tuple[object, ...]]:
    target_cells, parts = (
        (found.target.name, found.target.spec.mode, found.status.phase),
        found.target.spec.application.parts,
    )
    steps: dict[tuple[str | None, str | None], object] = {
        **{(drain.part, parts[drain.part]): f"drain to {drain.keep}" for drain in found.drains},
        **{(step.part, parts[step.part]): step.replicas_after for step in found.steps},
        **{(each.key, each.deployment): each.planned for each in found.config_writes},
    }
    for change in change_rows(found.status) or [ChangeRow(None, None, None, None)]:
        yield (*target_cells, *change, steps.get((change.subject, change.deployment)))


def _json(found: DryRun) -> dict[str, Any]:
    status = found.status.model_dump(mode="json", exclude={"state", "approval"})
    steps = [
        {"gpu": step.part, "replicas_before": step.replicas_before, "replicas_after": step.replicas_after}
        for step in found.steps
    ]
    drains = [{"gpu": drain.part, "keep": drain.keep} for drain in found.drains]
    configs = [
        {"deployment": each.deployment, "key": each.key, "planned": each.planned} for each in found.config_writes
    ]
    return (
        {"target": found.target.name, "mode": found.target.spec.mode.value}
        | status
        | {"next_changes": steps, "next_config_writes": configs, "next_drains": drains}
    )
