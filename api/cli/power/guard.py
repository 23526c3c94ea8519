"""`fleetwright guard`: run the power guard of a row, which needs only its agents."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.console import note
from api.cli.common.errors import input_errors
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import LogLevel, LogLevelOption
from api.cli.common.sockets import (
    HostOption,
    TlsCertOption,
    TlsKeyOption,
    listen,
    read_secret,
    scheme_of,
    server_tls,
)
from deploy.common.credentials import CertificateError, trust_of
from deploy.common.logs import configure_logs
from deploy.node_agent.schemas import ActuationMode
from deploy.power_guard.config import GuardFile
from deploy.power_guard.process import run_guard

app = new_app()


@app.command()
def guard(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The row, its agents, and how to act.")],
    host: HostOption = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65_535, help="Of /budget, /state, /metrics; 0: any free one.")
    ] = 9402,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Keep a row under its power budget, every two seconds.

    In mode `observe`, the file's default, the guard polls, decides, logs and counts, and sends nothing.
    """
    file = read_file(config, GuardFile)
    for path in file.token_files:
        read_secret(path)  # report a missing file before anything starts
    with input_errors(CertificateError):
        trust_of(file.agent_tls)
    tls = server_tls(tls_cert, tls_key)
    listener = listen(host, port)
    sends = "sends commands" if file.mode is ActuationMode.APPLY else "sends nothing"
    address, number = listener.getsockname()[:2]
    servers = f"{len(file.agents)} servers" if file.discover is None else f"servers of {file.discover.service}"
    note(f"guard of {file.row}: {servers}, {sends}; {scheme_of(tls)}://{address}:{number}/state")
    configure_logs(level=log_level)
    asyncio.run(run_guard(file, listener, tls=tls))
