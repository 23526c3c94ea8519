"""`fleetwright tokens`: create, list and revoke API tokens."""

from typing import Annotated

import typer

from api.cli.common.console import note, print_line
from api.cli.common.files import build_model
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, moment, print_table
from api.schemas.tokens import Scope, TokenRequest

COLUMNS = (
    Column("id"),
    Column("name"),
    Column("scopes"),
    moment("created"),
    Column("by"),
    moment("expires"),
    moment("revoked"),
)

app = new_app()


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The person or program that will hold it.")],
    scope: Annotated[list[Scope], typer.Option(help="What it allows; repeatable.")],
    expires_in_s: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=60, help="Expires after this time; else never.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Create a token and print its secret once, alone on stdout."""
    request = build_model(TokenRequest, "token", name=name, scopes=frozenset(scope), expires_in_s=expires_in_s)
    with connect(url, token_file) as client:
        made = client.create_token(request)
    if output is Format.JSON:
        print_json(made)
        return
    note(f"token {made.info.id} for {made.info.name}; keep this, it is not shown again:")
    print_line(made.secret or "")


@app.command("list")
def list_tokens(url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE) -> None:
    """List all tokens, revoked ones included, without their secrets."""
    with connect(url, token_file) as client:
        tokens = list(client.iter_tokens())
    if output is Format.JSON:
        print_json(tokens)
        return
    print_table(
        Table(
            COLUMNS,
            (
                (
                    token.id,
                    token.name,
                    " ".join(sorted(token.scopes)),
                    token.created_at,
                    token.created_by,
                    token.expires_at,
                    token.revoked_at,
                )
                for token in tokens
            ),
        )
    )


@app.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The id in `tokens list`; not the secret.")],
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Revoke a token."""
    with connect(url, token_file) as client:
        client.revoke_token(token_id)
    if output is Format.JSON:
        print_json({"id": token_id, "revoked": True})
    else:
        print_line(f"token {token_id} is revoked")
