from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from deploy.node_agent.gpu.factory import DRIVERS, DriverName


class DeviceName(StrEnum):
    """Names what sets the clocks of the node: one simulated server, or the GPUs of a driver."""

    SIMULATED = "simulated"
    SIMULATED_GPUS = DriverName.SIMULATED.value
    NVML = DriverName.NVML.value
    AMD = DriverName.AMD.value
    REDFISH = DriverName.REDFISH.value

    @property
    def driver(self) -> DriverName | None:
        """Is None for the simulated server."""
        return None if self is DeviceName.SIMULATED else DriverName(self.value)

    @property
    def is_real(self) -> bool:
        return self.driver is not None and DRIVERS[self.driver].is_real


def _file(help_text: str, *, default: str = "none", name: str | None = None) -> typer.models.OptionInfo:
    names = [name] if name else []
    option: typer.models.OptionInfo = typer.Option(*names, metavar="FILE", help=help_text, show_default=default)
    return option


ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="The node's name in the guard's file.")]
DeviceOption = Annotated[DeviceName, typer.Option(help="What sets clocks and caps.")]
ActOption = Annotated[bool, typer.Option("--act/--observe", help="Set caps of real GPUs; else observe only.")]
GuardedOption = Annotated[
    bool, typer.Option("--guarded/--unguarded", help="Safe clocks from the start, or from the first guard on.")
]
StateFileOption = Annotated[Path | None, _file("Original caps and leases, for the next agent after a crash.")]
RecordOption = Annotated[
    Path | None, _file("A job to record in this process: its peers, processes, and outputs.", name="--record")
]
TokenFileOption = Annotated[Path | None, _file("Bearer token that every request needs.")]

RedfishUrlOption = Annotated[
    str | None, typer.Option(metavar="URL", help="The node's BMC, for `--device redfish`.", show_default="none")
]
RedfishLoginOption = Annotated[Path | None, _file("USER:PASSWORD of the BMC, in one line.")]
RedfishCaOption = Annotated[Path | None, _file("Authority of the BMC's certificate.", default="the system's")]
RedfishBasicOption = Annotated[
    bool, typer.Option("--redfish-basic/--redfish-session", help="Log in with every request, or once.")
]

BoardOption = Annotated[str, typer.Option(metavar="NAME", help="GPU type of the simulated boards.")]
BoardsOption = Annotated[int, typer.Option(metavar="COUNT", min=1, max=64, help="How many simulated GPUs.")]
IgnoredOption = Annotated[
    float, typer.Option(metavar="SHARE", min=0.0, max=1.0, help="Orders that the simulated driver ignores.")
]

SocketOption = Annotated[
    Path | None, typer.Option("--socket", metavar="PATH", help="Unix socket to listen on.", show_default="none")
]
SocketGroupOption = Annotated[bool, typer.Option("--socket-group/--socket-owner", help="Its mode: 0660, or 0600.")]
TlsCertOption = Annotated[Path | None, _file("Certificate of the agent; with the next two: mutual TLS.")]
TlsKeyOption = Annotated[Path | None, _file("Its key.")]
ClientCaOption = Annotated[Path | None, _file("Authority of the clients that are let in.")]
