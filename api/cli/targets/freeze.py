"""`fleetwright freeze` and `thaw`: stop and allow all writes to targets."""

from typing import Annotated

import typer

from api.cli.common.console import print_line
from api.cli.common.files import build_model
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import RemoteOptions
from api.schemas.targets import Freeze

freeze_app = new_app()
thaw_app = new_app()


@freeze_app.command()
def freeze(
    service: RemoteOptions,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="The reason, shown with the freeze.")],
) -> None:
    """Stop every write to every target, at once.

    The freeze lasts until `fleetwright thaw`.  `fleetwright targets list` shows it.
    """
    wanted = build_model(Freeze, "freeze", frozen=True, reason=reason)
    with service.connect() as client:
        stored = client.replace_freeze(wanted, if_match="*").document
    if not service.printed(stored):
        print_line("frozen: nothing is written to any target until `fleetwright thaw`")


@thaw_app.command()
def thaw(service: RemoteOptions) -> None:
    """Lift the freeze."""
    with service.connect() as client:
        stored = client.replace_freeze(Freeze(), if_match="*").document
    if not service.printed(stored):
        print_line("thawed")
