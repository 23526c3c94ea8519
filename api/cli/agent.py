"""`fleetwright agent`: one node's end of the guard."""

import asyncio
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from api.cli.groups import new_app
from api.cli.listening import HostOption, LogLevel, LogLevelOption, listen, read_secret, refuse_strangers
from api.cli.streams import note
from deploy.guard.agent import NodeAgent
from deploy.guard.device import SimulatedDevice
from deploy.guard.logs import configure_logs
from deploy.guard.process import run_agent
from deploy.guard.wire import PhaseName
from power.actuation import ActuatorFaults
from power.guard import NodeClocks

app = new_app()


class DeviceName(StrEnum):
    """What sets clocks on the node."""

    SIMULATED = "simulated"


@app.command()
def agent(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="The node's name in the guard's file.")],
    device: Annotated[DeviceName, typer.Option(help="What sets clocks: so far a simulated server only.")],
    safe_token: Annotated[
        float, typer.Option(metavar="SHARE", min=0.05, max=1.0, help="Clock for writing tokens without a guard.")
    ] = 0.7,
    safe_prompt: Annotated[
        float, typer.Option(metavar="SHARE", min=0.05, max=1.0, help="Clock for reading prompts without a guard.")
    ] = 0.5,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Secret that the guard has to show.", show_default="none")
    ] = None,
    phase: Annotated[PhaseName, typer.Option(help="What the simulated server is doing.")] = PhaseName.TOKEN,
    ignored_share: Annotated[
        float, typer.Option(metavar="SHARE", min=0.0, max=1.0, help="Orders that the simulated driver ignores.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the simulated faults.")] = 0,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="To listen on; 0: any free one.")] = 9403,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Do what the guard says to one node while it is heard."""
    token = read_secret(token_file)
    listener = listen(host, port)
    refuse_strangers(listener, host=host, token=token)
    simulated = SimulatedDevice(
        name=server,
        now_s=time.monotonic,
        rng=np.random.default_rng(seed),
        phase=phase.phase,
        faults=ActuatorFaults(ignored_share=ignored_share),
    )
    node = NodeAgent(server=server, device=simulated, safe=NodeClocks(safe_token, safe_prompt), now_s=time.monotonic)
    address, number = listener.getsockname()[:2]
    note(f"agent of {server} on http://{address}:{number}, device {device}")
    configure_logs(level=log_level)
    asyncio.run(run_agent(node, listener, token=token))
