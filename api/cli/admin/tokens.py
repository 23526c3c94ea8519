"""`fleetwright tokens`: create, list and revoke API tokens."""

from typing import Annotated

import typer

from api.cli.common.console import note, print_line
from api.cli.common.files import build_model
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import RemoteOptions
from api.cli.common.tables import Column, moment
from api.schemas.tokens import TokenRequest, TokenScope

COLUMNS = (
    Column("id", of="id"),
    Column("name", of="name"),
    Column("project", of="project"),
    Column("scopes", of=lambda token: " ".join(sorted(token.scopes))),
    moment("created", of="created_at"),
    Column("by", of="created_by"),
    moment("expires", of="expires_at"),
    moment("revoked", of="revoked_at"),
)

app = new_app()


@app.command("create")
def create(
    service: RemoteOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The person or program that will hold it.")],
    scope: Annotated[list[TokenScope], typer.Option(help="What it allows; repeatable.")],
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="The only project that it sees and changes; else all.")
    ] = None,
    expires_in_s: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=60, help="Expires after this time; else never.")
    ] = None,
) -> None:
    """Create a token and print its secret once, alone on stdout."""
    request = build_model(
        TokenRequest, "token", name=name, scopes=frozenset(scope), expires_in_s=expires_in_s, project=project
    )
    with service.connect() as client:
        made = client.create_token(request)
    if service.printed(made):
        return
    note(f"token {made.info.id} for {made.info.name}; keep this, it is not shown again:")
    print_line(made.secret or "")


@app.command("list")
def list_tokens(service: RemoteOptions) -> None:
    """List all tokens, revoked ones included, without their secrets."""
    service.print_items(COLUMNS, lambda client: client.iter_tokens())


@app.command("revoke")
def revoke(
    service: RemoteOptions,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The id in `tokens list`; not the secret.")],
) -> None:
    """Revoke a token."""
    with service.connect() as client:
        client.revoke_token(token_id)
    if not service.printed({"id": token_id, "revoked": True}):
        print_line(f"token {token_id} is revoked")
