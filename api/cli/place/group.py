"""`fleetwright place`: place experts from recorded loads, assess and export placements."""

from collections.abc import Mapping
from typing import Any, ClassVar

from api.cli.common.lazy_groups import App, Group, LazyCommand, new_app

DEFAULT = "make"


def _command(name: str) -> App:
    match name:
        case "make":
            from api.cli.place.run import app  # noqa: PLC0415 - on use, as the others
        case "check":
            from api.cli.place.check import app  # noqa: PLC0415
        case "export":
            from api.cli.place.export import app  # noqa: PLC0415
        case _:
            raise LookupError(name)
    return app


COMMANDS = {
    DEFAULT: LazyCommand(_command, "Place experts by their loads; `make` may be left out."),
    "check": LazyCommand(_command, "Assess a placement on other loads, and recommend whether to act."),
    "export": LazyCommand(_command, "Write a placement as the file that an engine loads."),
}


class PlaceGroup(Group):
    """Has a default command."""

    lazy: ClassVar[Mapping[str, LazyCommand]] = COMMANDS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command where the arguments name none."""
        named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if named else [DEFAULT, *args])


app = new_app(cls=PlaceGroup)


@app.callback()
def place() -> None:
    """Place experts on GPUs: even load, little traffic, few moves.

    `fleetwright place LOADS …` is short for `fleetwright place make LOADS …`; `place make --help` has its options.
    """
