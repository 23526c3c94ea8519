"""`fleetwright faults monitor`: run the fault monitor of one job, which receives the batches of its recorders."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.console import note
from api.cli.common.errors import InputError, input_errors
from api.cli.common.files import read_file, violations_of
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import LogLevel, LogLevelOption
from api.cli.common.sockets import (
    HostOption,
    TlsCertOption,
    TlsKeyOption,
    listen,
    read_secret,
    require_loopback_or_token,
    scheme_of,
    server_tls,
)
from api.client import AsyncClient, ClientSettingsError, token_from_file
from deploy.common.logs import configure_logs
from deploy.fault_monitor.job_config import JobConfig, NodeNames
from deploy.fault_monitor.process import ReportTarget, run_monitor

app = new_app()


@app.command()
def monitor(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job file: nodes, ranks, groups.")],
    bundles: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for a bundle of each fault.", show_default="none")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Token that recorders must send.", show_default="none")
    ] = None,
    report: Annotated[
        str | None, typer.Option(metavar="URL", help="API to report diagnoses to.", show_default="none")
    ] = None,
    report_token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Token of the API: scope report, preferably also read.", show_default="none"),
    ] = None,
    names: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Names of the nodes in the fleet.", show_default="none")
    ] = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="To listen on; 0: any free one.")] = 9404,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> None:
    """Diagnose a live job from its recorders.

    Diagnoses go to stdout, one JSON object per line; with --report also to the API, with the names in --names.  The
    monitor only observes and never acts on nodes.  /metrics and /healthz are on the same port.
    """
    file = read_file(job, JobConfig)
    report_to = _report_to(file, report, report_token_file, names)
    token, tls = read_secret(token_file), server_tls(tls_cert, tls_key)
    listener = listen(host, port)
    require_loopback_or_token(listener, host=host, token=token)
    if bundles is not None:
        with input_errors(OSError, prefix=f"--bundles {bundles}: "):
            bundles.mkdir(parents=True, exist_ok=True)
    address, number = listener.getsockname()[:2]
    note(f"fault monitor of {file.name}: {file.nodes} nodes; {scheme_of(tls)}://{address}:{number}/metrics")
    configure_logs(level=log_level)
    asyncio.run(run_monitor(file, listener, token=token, out=sys.stdout, bundles=bundles, report_to=report_to, tls=tls))


def _report_to(file: JobConfig, url: str | None, token_file: Path | None, names: Path | None) -> ReportTarget | None:
    if url is None and token_file is None and names is None:
        return None
    if url is None or names is None:
        raise InputError("--report and --names: expected both or neither")
    known = read_file(names, NodeNames)
    with violations_of(str(names)), input_errors(ClientSettingsError, prefix="--report: "):
        token = token_from_file(token_file) if token_file is not None else None
        return ReportTarget(AsyncClient(url, token=token), known.of(file))
