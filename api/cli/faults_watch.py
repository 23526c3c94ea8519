"""`fleetwright faults watch`: the watcher of one job, as a process that its nodes' recorders send to."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli.failures import EXIT_BAD_INPUT, CommandError
from api.cli.files import read_file
from api.cli.groups import new_app
from api.cli.listening import HostOption, LogLevel, LogLevelOption, listen, read_secret, refuse_strangers
from api.cli.streams import note
from deploy.guard.logs import configure_logs
from deploy.watcher.job import JobFile
from deploy.watcher.process import run_watcher

app = new_app()


@app.command()
def watch(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="File: nodes, ranks, groups.")],
    bundles: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where a bundle of each fault is kept.", show_default="none")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Secret that recorders have to show.", show_default="none")
    ] = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="To listen on; 0: any free one.")] = 9404,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> None:
    """Hear a job's recorders and say what is wrong.

    One JSON object a line on stdout.  It only observes: nothing is cordoned, drained or killed.  /metrics and /healthz
    are on the same port.
    """
    file = read_file(job, JobFile)
    token = read_secret(token_file)
    listener = listen(host, port)
    refuse_strangers(listener, host=host, token=token)
    if bundles is not None:
        try:
            bundles.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"--bundles {bundles}: {error.strerror}", exit_code=EXIT_BAD_INPUT) from error
    address, number = listener.getsockname()[:2]
    note(f"watcher of {file.name}: {file.nodes} nodes; http://{address}:{number}/metrics")
    configure_logs(level=log_level)
    asyncio.run(run_watcher(file, listener, token=token, out=sys.stdout, bundles=bundles))
