"""`fleetwright tokens`: make, list and revoke API tokens."""

from typing import Annotated

import typer

from api.cli.common.build_model import build_model
from api.cli.common.console import note, print_line
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will hold it.")],
    scope: Annotated[list[Scope], typer.Option(help="What it allows; may be given several times.")],
    expires_in_s: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=60, help="When it expires; else never.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make a token.  Its secret is printed once, alone on stdout."""
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
    """List all tokens ever made, without their secrets."""
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
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `tokens list` shows it; not the secret.")],
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make a token worthless from now on."""
    with connect(url, token_file) as client:
        client.revoke_token(token_id)
    if output is Format.JSON:
        print_json({"id": token_id, "revoked": True})
    else:
        print_line(f"token {token_id} is revoked")
