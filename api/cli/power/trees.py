"""`fleetwright power trees`: check power trees in files, and read and replace those of a service."""

from collections.abc import Iterator
from typing import Annotated

import typer

from api.cli.common.console import note, print_line
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import FileArgument, RemoteOptions, ServiceOptions
from api.cli.common.output import DocumentFormat, DocumentFormatOption, Format, FormatOption, print_document, print_json
from api.cli.common.tables import Column, Table, number, print_table
from power.tree import PowerTree

FEEDS = (
    Column("feed"),
    Column("kind"),
    Column("parent"),
    Column("fed"),
    number("limit W"),
    number("budget W"),
    number("servers"),
)
TREES = (
    Column("tree", of="name"),
    number("version", of="version"),
    number("feeds", of=lambda each: len(each.tree.hierarchy.feeds)),
    number("servers", of=lambda each: _servers(each.tree)),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The tree's name.")]

app = new_app()


@app.command("list")
def list_trees(service: RemoteOptions) -> None:
    """List the trees that a service keeps."""

    service.print_items(TREES, lambda client: client.iter_power_trees())


@app.command("check")
def check(file: FileArgument, output: FormatOption = Format.TABLE) -> None:
    """Check a file: a line per violation, with the allowed range, and exit code 2."""
    tree = read_file(file, PowerTree)
    if output is Format.JSON:
        print_json({"file": str(file), "good": True, "feeds": len(tree.hierarchy.feeds), "servers": _servers(tree)})
        return
    print_table(Table(FEEDS, _rows(tree)))


@app.command("pull")
def pull(
    service: ServiceOptions,
    name: NameArgument,
    output: DocumentFormatOption = DocumentFormat.YAML,
) -> None:
    """Print a tree that a service keeps."""

    with service.connect() as client:
        found = client.get_power_tree(name)
    note(f"version {found.etag}")
    print_document(found.document.tree, output)


@app.command("push")
def push(
    service: RemoteOptions,
    file: FileArgument,
    etag: Annotated[
        str | None, typer.Option(metavar="ETAG", help="Replace only this version; without it, the one there now.")
    ] = None,
) -> None:
    """Store a tree under its own name, in place of the one there now."""
    from api.cli.common.remote import put_document  # noqa: PLC0415 - as above

    tree = read_file(file, PowerTree)
    with service.connect() as client:
        stored = put_document(
            create=lambda: client.create_power_tree(tree),
            replace=lambda tag: client.replace_power_tree(tree, if_match=tag),
            current=lambda: client.get_power_tree(tree.name).etag,
            etag=etag,
        )
    if not service.printed({"name": tree.name, "etag": stored.etag}):
        print_line(f"power tree {tree.name}: version {stored.etag}")


@app.command("delete")
def delete(service: RemoteOptions, name: NameArgument) -> None:
    """Forget a tree on which no budget is in force."""

    with service.connect() as client:
        client.delete_power_tree(name, if_match=client.get_power_tree(name).etag)
    if not service.printed({"name": name, "deleted": True}):
        print_line(f"power tree {name} is deleted")


def _rows(tree: PowerTree) -> Iterator[tuple[object, ...]]:
    here = tree.hierarchy
    for name in here.top_down():
        feed = here.feeds[name]
        lowest_w = None if feed.budget_w is None else min(feed.budget_w)
        servers = sum(here.classes[position].group.count for position in here.below[name])
        yield name, feed.kind, feed.parent, feed.redundancy, feed.limit_w, lowest_w, servers


def _servers(tree: PowerTree) -> int:
    return sum(one.group.count for one in tree.hierarchy.classes)
