"""`fleetwright targets`: manage running applications, their plans and their modes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from api.cli.common.console import note, print_line
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.files import read_file, write_whole
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import FileArgument, ProjectOptions, ServiceOptions
from api.cli.common.remote import put_document
from api.cli.common.tables import (
    Column,
    Table,
    format_value,
    moment,
    number,
    print_fields,
    print_table,
    table_of,
)
from api.cli.targets.changes import COLUMNS as CHANGE_COLUMNS
from api.cli.targets.changes import change_rows
from api.client import Client, NotFoundError
from api.schemas.expert_maps import ExpertMapStatus
from api.schemas.target_state import ApprovalRequest
from api.schemas.targets import Freeze, Mode, Target, TargetPreview, TargetSpec, TargetStatus
from deploy.common.errors import PlanUnusableError
from deploy.controller.serve_settings import both_tables, routing_table
from deploy.router.table import RoutingTable

COLUMNS = (
    Column("target"),
    Column("mode"),
    Column("plan"),
    Column("phase"),
    Column("planned"),
    Column("running"),
    moment("reported"),
    Column("message"),
)
PREVIEW = (
    Column("field", of=lambda change: change.path or "(all)"),
    Column("now", show=format_value, of="now"),
    Column("planned", show=format_value, of="planned"),
)
MAPS = (
    Column("expert map"),
    Column("placement"),
    Column("phase"),
    number("replicas"),
    number("loaded"),
    number("waiting"),
    number("refused"),
    Column("turn"),
)

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check the write and show what it changes; store nothing.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The target's name.")]

app = new_app()


@app.command("list")
def list_targets(service: ProjectOptions) -> None:
    """List the targets, each with the controller's last report."""
    with service.connect() as client:
        targets = [(target, _status(client, target.name)) for target in client.iter_targets()]
        freeze = client.get_freeze().document
    rows = [_json(target, status) for target, status in targets]
    if service.printed({"freeze": freeze.model_dump(mode="json"), "targets": rows}):
        return
    print_table(Table(COLUMNS, (_row(target, status) for target, status in targets)))
    _note_freeze(freeze)


@app.command("show")
def show(service: ProjectOptions, name: NameArgument) -> None:
    """Show one target: its specification, the last report, the ready changes."""
    with service.connect() as client:
        target = client.get_target(name).document
        status = _status(client, name)
        freeze = client.get_freeze().document
    if service.printed(_json(target, status)):
        return
    spec = target.spec.model_dump(mode="json")
    report = (
        {}
        if status is None
        else status.model_dump(mode="json", exclude={"changes", "settings", "plan_id", "expert_maps"})
    )
    print_fields({"target": target.name, "version": target.version} | spec | report)
    if status is not None:
        _print_ready(status)
    _note_freeze(freeze)


@app.command("put")
def put(service: ProjectOptions, name: NameArgument, file: FileArgument, dry_run: DryRunOption = False) -> None:
    """Register a target, or replace its specification."""
    spec = read_file(file, TargetSpec)
    with service.connect() as client:
        if dry_run:
            preview = put_document(
                create=lambda: client.preview_target(name, spec),
                replace=lambda tag: client.preview_target(name, spec, if_match=tag),
                current=lambda: client.get_target(name).etag,
            ).document
            _print_preview(preview, service)
            return
        target = put_document(
            create=lambda: client.create_target(name, spec),
            replace=lambda tag: client.replace_target(name, spec, if_match=tag),
            current=lambda: client.get_target(name).etag,
        ).document
    _print_target(target, service)


@app.command("set")
def change(
    service: ProjectOptions,
    name: NameArgument,
    plan: Annotated[str | None, typer.Option(metavar="PLAN", help="Id of the plan to apply.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="How far the controller may go.")] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Assign a plan to a target, or change its mode."""
    changes: dict[str, Any] = {"plan_id": plan, "mode": mode}
    changes = {field: value for field, value in changes.items() if value is not None}
    if not changes:
        raise InputError("targets set: give --plan, --mode or both")
    with service.connect() as client:
        found = client.get_target(name)
        spec = found.document.spec.model_copy(update=changes)
        if dry_run:
            _print_preview(client.preview_target(name, spec, if_match=found.etag).document, service)
            return
        target = client.replace_target(name, spec, if_match=found.etag).document
    _print_target(target, service)


@app.command("approve")
def approve(
    service: ProjectOptions,
    name: NameArgument,
    digest: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Digest of the reviewed change set; default: the current one.")
    ] = None,
) -> None:
    """Approve exactly the ready change set, also of a plan that was rolled back."""
    with service.connect() as client:
        target = client.get_target(name).document
        status = _status(client, name)
        if status is None or status.digest is None:
            raise CommandError(f"target {name}: no change set is ready", exit_code=EXIT_NEGATIVE)
        request = _approval(target.spec.plan_id, digest or status.digest)
        approval = client.approve_target(name, request)
    if service.printed(approval):
        return
    print_fields({"target": name} | approval.model_dump(mode="json"))
    if digest is None:
        _print_ready(status)


@app.command("delete")
def delete(service: ProjectOptions, name: NameArgument) -> None:
    """Delete a target.  Its application keeps running."""
    with service.connect() as client:
        client.delete_target(name, if_match=client.get_target(name).etag)
    if not service.printed({"name": name, "deleted": True}):
        print_line(f"target {name} is deleted")


@app.command("table")
def table(
    service: ServiceOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The target's name.")],
    plan: Annotated[
        str | None, typer.Option(metavar="PLAN", help="A plan other than the target's.", show_default="the target's")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN", help="Mix half of this plan in, while replica counts change.", show_default="none"
        ),
    ] = None,
    max_in_flight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEPLOYMENT=N",
            help="Concurrent requests per replica of a deployment; repeatable.",
            show_default="64 each",
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replace this file atomically.", show_default="standard output")
    ] = None,
) -> None:
    """Print the weights of a target's plan as a routing table.

    A router process polls its `table_file` every second; a router on Ray Serve receives `table` in its `user_config`.
    Neither drops a request when the table changes.
    """
    bounds = _bounds(max_in_flight or [])
    with service.connect() as client:
        spec = client.get_target(name).document.spec
        if (wanted := plan or spec.plan_id) is None:
            raise InputError(f"target {name} has no plan: give --plan")
        records = [client.get_plan(each) for each in (wanted, after) if each is not None]
    if unknown := sorted(bounds.keys() - set(spec.application.parts.values())):
        known = ", ".join(sorted(spec.application.parts.values()))
        raise InputError(f"--max-in-flight {unknown[0]}: no deployment of target {name}; it has: {known}")
    try:
        now, *before = (routing_table(record, spec, max_in_flight=bounds) for record in records)
        found: RoutingTable = both_tables(before[0], now) if before else now
    except PlanUnusableError as error:
        raise CommandError(str(error), exit_code=EXIT_NEGATIVE) from error
    table_json = found.model_dump_json(indent=2)
    if into is None:
        print_line(table_json)
        return
    write_whole(into, f"{table_json}\n".encode())
    note(f"{into}: table {found.version} of {', '.join(sorted(found.routes))}")


def _status(client: Client, name: str) -> TargetStatus | None:
    try:
        return client.get_target_status(name)
    except NotFoundError:
        return None


def _map_row(gpu: str, each: ExpertMapStatus) -> tuple[Any, ...]:
    counts = (each.replicas, each.loaded, each.waiting, each.refused)
    return (gpu, each.placement_id, each.phase.value, *counts, each.turn or "")


def _approval(plan_id: str | None, digest: str) -> ApprovalRequest:
    try:
        return ApprovalRequest(plan_id=plan_id, digest=digest)
    except ValidationError as error:
        raise InputError("--digest: allowed: 64 hexadecimal digits, as in `fleetwright targets show`") from error


def _print_ready(status: TargetStatus) -> None:
    if rows := change_rows(status):
        print_line("")
        print_table(Table(CHANGE_COLUMNS, rows))
    if status.expert_maps:
        print_line("")
        print_table(Table(MAPS, (_map_row(gpu, each) for gpu, each in sorted(status.expert_maps.items()))))


def _print_preview(preview: TargetPreview, service: ProjectOptions) -> None:
    if service.printed(preview):
        return
    state = "would be created" if preview.created else f"would get version {preview.version}"
    approval = "; its change set would wait for an approval" if preview.needs_approval else ""
    note(f"target {preview.name} {state}{approval}; nothing is stored")
    if preview.changes:
        print_table(table_of(PREVIEW, preview.changes))
    else:
        print_line("nothing to change")


def _print_target(target: Target, service: ProjectOptions) -> None:
    if not service.printed(target):
        print_fields({"target": target.name, "version": target.version} | target.spec.model_dump(mode="json"))


def _note_freeze(freeze: Freeze) -> None:
    if freeze.frozen:
        note(f"frozen, nothing is written to any target: {freeze.reason or 'no reason given'}")


def _json(target: Target, status: TargetStatus | None) -> dict[str, Any]:
    return target.model_dump(mode="json") | {"status": None if status is None else status.model_dump(mode="json")}


def _row(target: Target, status: TargetStatus | None) -> tuple[object, ...]:
    specified = (target.name, target.spec.mode, target.spec.plan_id)
    if status is None:
        return (*specified, "no report yet", None, None, None, None)
    reported = (status.phase, _counts(status.planned), _counts(status.applied), status.observed_at, status.message)
    return (*specified, *reported)


def _counts(replicas: Mapping[str, int]) -> str | None:
    return ", ".join(f"{count} {gpu}" for gpu, count in sorted(replicas.items())) or None


def _bounds(entries: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in entries:
        deployment, sign, count = entry.partition("=")
        if not deployment or not sign or not count.isdecimal() or int(count) < 1:
            raise InputError(f"--max-in-flight {entry}: expected DEPLOYMENT=N, N at least 1")
        found[deployment] = int(count)
    return found
