"""`fleetwright agent`: the power guard's agent on one node, which caps the node's GPUs."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from api.cli.common.console import note
from api.cli.common.errors import CommandError, InputError
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import LogLevel, LogLevelOption
from api.cli.common.sockets import HostOption, listen, read_secret, refuse_strangers
from deploy.common.http_server import MutualTls, unix_listener
from deploy.common.logs import configure_logs
from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.gpu.factory import (
    DRIVERS,
    DriverName,
    DriverOptions,
    RedfishAccess,
    Simulation,
    node_of,
    open_gpus,
)
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.gpu.state_file import StateFileError
from deploy.node_agent.routes import run_agent
from deploy.node_agent.schemas import Name, PhaseName
from deploy.telemetry.factory import RecordingFile, recorder_of
from deploy.telemetry.recorder import record_in_background
from fleet.errors import FleetwrightError
from power.controls import NodeClocks


def _file(help_text: str, *, default: str = "none", name: str | None = None) -> typer.models.OptionInfo:
    names = [name] if name else []
    option: typer.models.OptionInfo = typer.Option(*names, metavar="FILE", help=help_text, show_default=default)
    return option


ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="The node's name in the guard's file.")]
DeviceOption = Annotated[DriverName, typer.Option(help="What sets clocks and caps.")]
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


app = new_app()


@app.command()
def agent(
    server: ServerArgument,
    device: DeviceOption,
    act: ActOption = False,
    safe_token: Annotated[
        float, typer.Option(metavar="SHARE", min=0.05, max=1.0, help="Clock for writing tokens without a guard.")
    ] = 0.7,
    safe_prompt: Annotated[
        float, typer.Option(metavar="SHARE", min=0.05, max=1.0, help="Clock for reading prompts without a guard.")
    ] = 0.5,
    guarded: GuardedOption = True,
    token_file: TokenFileOption = None,
    state_file: StateFileOption = None,
    record: RecordOption = None,
    redfish_url: RedfishUrlOption = None,
    redfish_login: RedfishLoginOption = None,
    redfish_ca: RedfishCaOption = None,
    redfish_basic: RedfishBasicOption = False,
    phase: Annotated[PhaseName, typer.Option(help="What the simulated GPUs are doing.")] = PhaseName.TOKEN,
    gpu: BoardOption = "H100-SXM",
    gpus: BoardsOption = 8,
    ignored_share: IgnoredOption = 0.0,
    seed: Annotated[int, typer.Option(help="Of the simulated faults.")] = 0,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="To listen on; 0: any free one.")] = 9403,
    unix_socket: SocketOption = None,
    socket_group: SocketGroupOption = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    client_ca: ClientCaOption = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the agent of one node: caps with leases, telemetry."""
    _check_name(server)
    token, tls = read_secret(token_file), _mutual_tls(tls_cert, tls_key, client_ca)
    if act and DRIVERS[device].is_real and token is None and tls is None:
        raise _bad("--act: needs --token-file or mutual TLS")
    recording = read_file(record, RecordingFile) if record else None
    listener = _listener(unix_socket, group=socket_group, host=host, port=port, token=token, tls=tls)
    configure_logs(level=log_level)
    safe = NodeClocks(safe_token, safe_prompt)
    access = RedfishAccess(url=redfish_url, login=redfish_login, authority=redfish_ca, basic=redfish_basic)
    load = 0.0 if phase in (PhaseName.IDLE, PhaseName.PARKED) else 1.0
    simulation = Simulation(server=server, board=gpu, count=gpus, load=load, ignored_share=ignored_share, seed=seed)
    is_real = DRIVERS[device].is_real
    with _closing_on_failure(listener):
        options = DriverOptions(redfish=access, simulation=simulation)
        node = _gpu_node(device, options, acting=act or not is_real, state_file=state_file, safe=safe)
    if not is_real:
        node.phases.report("simulated", phase.phase, until_s=inf)
    holder = NodeAgent(server=server, device=node, safe=safe, now_s=time.monotonic, guarded=guarded)
    observing = "" if node.cap_controller.acting else ", observing: --act sets caps"
    note(f"agent of {server} on {_where(listener, tls=tls)}, device {device}{observing}")
    with _closing_on_failure(listener):
        beside = _recording(recording)
    asyncio.run(run_agent(holder, listener, token=token, gpus=node, tls=tls, beside=beside))


def _bad(message: str) -> CommandError:
    return InputError(message)


def _check_name(server: str) -> None:
    """Reject a name that the guard's file could not contain."""
    try:
        TypeAdapter(Name).validate_python(server)
    except ValidationError as error:
        raise _bad(f"SERVER: must have 1 to 200 characters, got {len(server)}") from error


def _mutual_tls(certificate: Path | None, key: Path | None, authority: Path | None) -> MutualTls | None:
    """Require all three files or none, and check them before anything starts."""
    if certificate is None and key is None and authority is None:
        return None
    if certificate is None or key is None or authority is None:
        raise _bad("--tls-cert, --tls-key and --client-ca: all three are needed")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(authority)
    except OSError as error:
        raise _bad(f"--tls-cert, --tls-key, --client-ca: {error.strerror or error}") from error
    return MutualTls(certificate, key, authority)


def _listener(
    path: Path | None, *, group: bool, host: str, port: int, token: str | None, tls: MutualTls | None
) -> socket.socket:
    if path is not None:
        try:
            return unix_listener(path, mode=0o660 if group else 0o600)
        except OSError as error:
            raise _bad(f"cannot listen on {path}: {error.strerror or error}") from error
    listener = listen(host, port)
    if tls is None:
        refuse_strangers(listener, host=host, token=token)
    return listener


def _recording(settings: RecordingFile | None) -> AbstractContextManager[None] | None:
    """Return the recorder of `fleetwright faults record`, to run with the agent."""
    try:
        return record_in_background(recorder_of(settings.recording(), started_s=time.time())) if settings else None
    except OSError as error:
        raise _bad(f"--record: {error.strerror or error}") from error
    except FleetwrightError as error:
        raise _bad(f"--record: {error}") from error


@contextmanager
def _closing_on_failure(listener: socket.socket) -> Iterator[None]:
    try:
        yield
    except CommandError:
        listener.close()
        raise


def _where(listener: socket.socket, *, tls: MutualTls | None) -> str:
    if listener.family == socket.AF_UNIX:
        return str(listener.getsockname())
    address, number = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{address}:{number}"


def _gpu_node(
    driver: DriverName, options: DriverOptions, *, acting: bool, state_file: Path | None, safe: NodeClocks
) -> GpuNode:
    try:
        gpus = open_gpus(driver, options)
        return node_of(gpus, acting=acting, state_file=state_file, safe_share=min(safe))
    except StateFileError as error:
        raise _bad(f"--state-file {error}") from error
    except FleetwrightError as error:
        raise _bad(f"--device {driver}: {error}") from error
