"""`fleetwright heal`: isolated nodes drained, their training moved; and the cases that this makes."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer
from prometheus_client import CollectorRegistry

from api.cli.common.console import note, say
from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.common.lazy_groups import new_app
from api.cli.common.metrics_port import MetricsHostOption, MetricsPortOption, served_metrics
from api.cli.common.options import TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, say_json
from api.cli.common.ray_session import joined
from api.cli.common.remote import client_errors, connect, read_token
from api.cli.common.tables import Column, Table, moment, say_fields, say_table
from api.cli.controller.run import LogLevel
from api.client import AsyncFleetwright
from api.client.transport import DEFAULT_URL
from api.schemas.remediation import HealingCase
from api.server import configure_logging
from api.server.settings import LogFormat
from deploy.common.liveness import Pulse
from deploy.remediation.hooks import HOOKS
from deploy.remediation.metrics import HealerMetrics

CASES = (
    Column("id"),
    Column("node"),
    Column("phase"),
    moment("since"),
    Column("runs"),
    Column("message"),
)

app = new_app()


@app.callback()
def heal() -> None:
    """Drain isolated nodes, move their training to spares, probe them."""


@app.command("run")
def run(
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Ray cluster to join.")] = "auto",
    act: Annotated[
        bool, typer.Option("--act", help="Drain and end workers; without it only say what would be done.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Watch training runs for faults as well.")] = True,
    inbox: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Unix socket of WatchWorkers; {node}: the node's Ray id.", show_default="none"
        ),
    ] = None,
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Ray namespace of runs' boards.")] = "fleetwright",
    checkpoint_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, max=3600.0, help="Time for ranks that can still checkpoint.")
    ] = 60.0,
    period_s: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, max=600.0, help="Between rounds.")] = 1.0,
    hook: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COMMAND", help="Command for replace, probation or release.", show_default="none"),
    ] = None,
    hook_timeout_s: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, max=3600.0, help="After which a command is killed.")
    ] = 60.0,
    metrics_port: MetricsPortOption = 9407,
    metrics_host: MetricsHostOption = "127.0.0.1",
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    log_level: Annotated[
        LogLevel, typer.Option(envvar="FLEETWRIGHT_LOG_LEVEL", case_sensitive=False, help="Least severity logged.")
    ] = LogLevel.INFO,
) -> None:
    """Do on a Ray cluster what the isolation policy decides, case by case.

    Which nodes go is the policy's to say (`faults isolation`), which ships in mode `observe` too.
    """
    commands = _hooks(hook or [])
    configure_logging(level=log_level, log_format=LogFormat.JSON)
    with client_errors(url or DEFAULT_URL):
        client = AsyncFleetwright(url or DEFAULT_URL, token=read_token(token_file))
    registry, pulse = CollectorRegistry(), Pulse()
    with joined(address, namespace), served_metrics(metrics_host, metrics_port, registry, alive=pulse.is_alive):
        from deploy.remediation.controller import HealerSettings  # noqa: PLC0415 - needs Ray
        from deploy.remediation.process import HealingOptions, run_healing  # noqa: PLC0415

        options = HealingOptions(
            namespace=namespace,
            watch=watch,
            inbox=inbox,
            hooks=commands,
            hook_timeout_s=hook_timeout_s,
            healer=HealerSettings(act=act, period_s=period_s, checkpoint_s=checkpoint_s),
        )

        async def work() -> None:
            async with client as api:
                await run_healing(options, api, out=sys.stdout, metrics=HealerMetrics(registry), pulse=pulse)

        asyncio.run(_until_told_to_end(work()))


@app.command("cases")
def cases(url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE) -> None:
    """List all cases, the newest last."""
    with connect(url, token_file) as client:
        found = list(client.iter_healing_cases())
    if output is Format.JSON:
        say_json(found)
    else:
        say_table(Table(CASES, map(_row, found)))


@app.command("case")
def case(
    case_id: Annotated[str, typer.Argument(metavar="ID", help="As `cases` lists it.")],
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one case with everything that was done."""
    with connect(url, token_file) as client:
        found = client.get_healing_case(case_id).document
    if output is Format.JSON:
        say_json(found)
        return
    told = found.case
    say_fields({"node": told.node, "phase": told.phase.value, "verdict": told.accusation, "message": told.message})
    for each in told.runs:
        where = "over" if each.over else f"stepped again at {each.resumed_step}" if each.settled else "has yet to step"
        say(f"run {each.run}: {each.workers} worker(s), checkpoint {each.checkpoint_step}; {where}")
    for act in told.acts:
        say(f"{act.at:%Y-%m-%d %H:%M:%S}Z  {act.act}  {act.detail}")


def _row(found: HealingCase) -> tuple[object, ...]:
    told = found.case
    runs = ", ".join(each.run for each in told.runs)
    return found.id, told.node, told.phase.value, told.phase_since, runs, told.message


def _hooks(said: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in said:
        name, sign, command = entry.partition("=")
        if not sign or name not in HOOKS or not command.strip():
            raise CommandError(
                f"--hook {entry}: expected NAME=COMMAND, NAME one of {', '.join(HOOKS)}", exit_code=EXIT_BAD_INPUT
            )
        found[name] = command
    return found


async def _until_told_to_end(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        note("told to end")
