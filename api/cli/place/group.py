"""`fleetwright place`: experts to slots, from recorded loads; and what can be done with the outcome."""

from collections.abc import Mapping
from typing import Any, ClassVar

from api.cli.common.lazy_groups import Group, Lazy, new_app

DEFAULT = "make"
COMMANDS = {
    DEFAULT: Lazy("api.cli.place.run", "Place experts by their loads; `make` may be left out."),
    "check": Lazy("api.cli.place.check", "Judge a placement on other loads, and say whether to act."),
    "export": Lazy("api.cli.place.export", "Write a placement as the file that an engine loads."),
}


class PlaceGroup(Group):
    """A group of which one command is meant where none is named."""

    lazy: ClassVar[Mapping[str, Lazy]] = COMMANDS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default's name in front of what names no command."""
        named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if named else [DEFAULT, *args])


app = new_app(cls=PlaceGroup)


@app.callback()
def place() -> None:
    """Place experts on GPUs: even load, little traffic, few moves.

    `fleetwright place LOADS …` is short for `fleetwright place make LOADS …`; `place make --help` has its options.
    """
