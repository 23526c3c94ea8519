"""Builds command groups that import the module of a command on its call.

`fleetwright gpus list` must not import FastAPI, SQLAlchemy and a solver.  `--help`, completion and "did you mean" need
only the name and one line of help of a lazy command.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from api.cli.common.errors import EXIT_BAD_INPUT

HELP_WIDTH = 100


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Names a command or group in a module of its own."""

    module: str
    help: str
    attribute: str = "app"

    def load(self, name: str) -> Any:
        """Import the command and give it its name in the group."""
        command = typer.main.get_command(getattr(import_module(self.module), self.attribute))
        command.name = name
        command.help = command.help or self.help
        return command


class _Placeholder(TyperCommand):
    """Stands for a lazy command until it is called."""

    def __init__(self, name: str, lazy: LazyCommand) -> None:
        super().__init__(name, help=lazy.help)
        self.lazy = lazy


class Group(TyperGroup):
    """Lists lazy commands before its own.  Without a command it prints its help."""

    lazy: ClassVar[Mapping[str, LazyCommand]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {**{name: _Placeholder(name, lazy) for name, lazy in self.lazy.items()}, **self.commands}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without a command: print the help on stderr and fail."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(EXIT_BAD_INPUT)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Replace a placeholder by its command."""
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, _Placeholder):
            command = command.lazy.load(name or "")
        return name, command, rest


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[Group]:
    return type("LazyGroup", (Group,), {"lazy": commands})


def new_app(*, cls: type[Group] = Group, summary: str | None = None, add_completion: bool = False) -> typer.Typer:
    """Create an application with plain help, identical on a terminal and in a pipe."""
    return typer.Typer(
        cls=cls,
        help=summary,
        add_completion=add_completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
    )
