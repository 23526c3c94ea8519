"""`fleetwright projects`: list projects, and set and delete them with their quotas."""

from typing import Annotated

import typer

from api.cli.common.console import print_line
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import FileArgument, RemoteOptions
from api.cli.common.remote import put_document
from api.cli.common.tables import Column, number, print_fields
from api.schemas.projects import Project, ProjectSpec

COLUMNS = (
    Column("name", of="name"),
    Column("description", of="spec.description"),
    number("plans/day", of="spec.quotas.plans_per_day"),
    number("CPU s/day", of="spec.quotas.cpu_s_per_day"),
    number("queued jobs", of="spec.quotas.queued_jobs"),
    number("bytes", of="spec.quotas.stored_bytes"),
    number("version", of="version"),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The project's name.")]

app = new_app()


@app.command("list")
def list_projects(service: RemoteOptions) -> None:
    """List the projects with their quotas, by name."""
    service.print_items(COLUMNS, lambda client: client.iter_projects())


@app.command("show")
def show(service: RemoteOptions, name: NameArgument) -> None:
    """Show a project and its quotas."""
    with service.connect() as client:
        found = client.get_project(name).document
    _print(found, service)


@app.command("put")
def put(service: RemoteOptions, name: NameArgument, file: FileArgument) -> None:
    """Create a project, or replace its quotas, from a file such as `quotas: {plans_per_day: 100}`."""
    spec = read_file(file, ProjectSpec)
    with service.connect() as client:
        stored = put_document(
            create=lambda: client.create_project(name, spec),
            replace=lambda tag: client.replace_project(name, spec, if_match=tag),
            current=lambda: client.get_project(name).etag,
        )
    _print(stored.document, service)


@app.command("delete")
def delete(service: RemoteOptions, name: NameArgument) -> None:
    """Delete a project without valid tokens and targets; its results stay."""
    with service.connect() as client:
        client.delete_project(name, if_match=client.get_project(name).etag)
    if not service.printed({"name": name, "deleted": True}):
        print_line(f"project {name} is deleted")


def _print(found: Project, service: RemoteOptions) -> None:
    if not service.printed(found):
        print_fields(found.model_dump(mode="json"))
