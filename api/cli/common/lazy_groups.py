"""Builds command groups that import the module of a command on its call.

`fleetwright gpus list` must not import FastAPI, SQLAlchemy and a solver.  `--help`, completion and "did you mean" need
only the name and one line of help of a lazy command.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from api.cli.common.errors import EXIT_BAD_INPUT

HELP_WIDTH = 100


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command or group in a module of its own, which `loader` imports; `loader` takes the command's name."""

    loader: Callable[[str], "App"]
    help: str

    def load(self, name: str) -> Any:
        """Import the command and give it its name in the group."""
        command = typer.main.get_command(self.loader(name))
        command.name = name
        command.help = command.help or self.help
        return command


@dataclass(frozen=True, slots=True)
class LazyGroup:
    """Names the lazy commands of a group."""

    help: str
    commands: Mapping[str, LazyCommand]

    def load(self, name: str) -> Any:
        """Create the group."""
        app = new_app(cls=lazy_group(self.commands), summary=self.help)
        app.callback()(lambda: None)
        group = typer.main.get_command(app)
        group.name = name
        return group


class _Placeholder(TyperCommand):
    """Stands for a lazy command until it is called."""

    def __init__(self, name: str, lazy: LazyCommand | LazyGroup) -> None:
        super().__init__(name, help=lazy.help)
        self.lazy = lazy


class Group(TyperGroup):
    """Lists lazy commands before its own.  Without a command it prints its help."""

    lazy: ClassVar[Mapping[str, LazyCommand | LazyGroup]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {**{name: _Placeholder(name, lazy) for name, lazy in self.lazy.items()}, **self.commands}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without a command: print the help on stderr and fail."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(EXIT_BAD_INPUT)
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Suggest single words: a command of two words would be quoted."""
        return [each for each in super().shell_complete(ctx, incomplete) if " " not in each.value]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Replace a placeholder by its command.  A command of two words stands beside that of the first word."""
        if (two := " ".join(args[:2])) in self.commands:
            args = [two, *args[2:]]
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, _Placeholder):
            command = command.lazy.load(name or "")
        return name, command, rest


def lazy_group(commands: Mapping[str, LazyCommand | LazyGroup]) -> type[Group]:
    return type("LazyGroup", (Group,), {"lazy": commands})


class App(typer.Typer):
    """Expands a parameter that is a dataclass of options: its fields become the last options of the command."""

    def command(self, name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], Any]:
        """Register a command."""
        register = super().command(name, **attributes)
        return lambda function: register(_expanded(function))


def new_app(*, cls: type[Group] = Group, summary: str | None = None, add_completion: bool = False) -> App:
    """Create an application with plain help, identical on a terminal and in a pipe."""
    return App(
        cls=cls,
        help=summary,
        add_completion=add_completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
    )


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    own: Mapping[str, Any] = signature(function).parameters
    kinds: dict[str, Any] = {
        name: parameter.annotation for name, parameter in own.items() if is_dataclass(parameter.annotation)
    }
    groups = {name: signature(kind).parameters for name, kind in kinds.items()}
    if not groups:
        return function
    options = [parameter for name, parameter in own.items() if name not in groups]
    options += [option for group in groups.values() for option in group.values()]

    @wraps(function)
    def run(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = kinds[name](**{option: given.pop(option) for option in group})
        return function(**given)

    run.__signature__ = Signature([option.replace(kind=Parameter.KEYWORD_ONLY) for option in options])  # type: ignore[attr-defined] # what typer reads
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run
