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
from api.cli.common.sockets import HostOption, listen, read_secret, require_loopback_or_token
from deploy.common.http_server import ServerTls, unix_listener
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


TokenFileOption = Annotated[Path | None, _file("Bearer token that every request needs.")]


app = new_app()


@app.command()
def agent(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="The node's name in the guard's file.")],
    device: Annotated[DriverName, typer.Option(help="What sets clocks and caps.")],
    act: Annotated[bool, typer.Option("--act/--observe", help="Set caps of real GPUs; else observe only.")] = False,
    safe_token: Annotated[
        float, typer.Option(metavar="SHARE", min=0.05, max=1.0, help="Clock for writing tokens without a guard.")
    ] = 0.7,
    safe_prompt: Annotated[
        float, typer.Option(metavar="SHARE", min=0.05, max=1.0, help="Clock for reading prompts without a guard.")
    ] = 0.5,
    guarded: Annotated[
        bool, typer.Option("--guarded/--unguarded", help="Safe clocks from the start, or from the first guard on.")
    ] = True,
    token_file: TokenFileOption = None,
    state_file: Annotated[Path | None, _file("Original caps and leases, for the next agent after a crash.")] = None,
    record: Annotated[
        Path | None, _file("A job to record in this process: its peers, processes, and outputs.", name="--record")
    ] = None,
    redfish_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The node's BMC, for `--device redfish`.", show_default="none")
    ] = None,
    redfish_login: Annotated[Path | None, _file("USER:PASSWORD of the BMC, in one line.")] = None,
    redfish_ca: Annotated[Path | None, _file("Authority of the BMC's certificate.", default="the system's")] = None,
    redfish_basic: Annotated[
        bool, typer.Option("--redfish-basic/--redfish-session", help="Log in with every request, or once.")
    ] = False,
    phase: Annotated[PhaseName, typer.Option(help="What the simulated GPUs are doing.")] = PhaseName.TOKEN,
    gpu: Annotated[str, typer.Option(metavar="NAME", help="GPU type of the simulated boards.")] = "H100-SXM",
    gpus: Annotated[int, typer.Option(metavar="COUNT", min=1, max=64, help="How many simulated GPUs.")] = 8,
    ignored_share: Annotated[
        float, typer.Option(metavar="SHARE", min=0.0, max=1.0, help="Commands that the simulated driver ignores.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the simulated faults.")] = 0,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="To listen on; 0: any free one.")] = 9403,
    unix_socket: Annotated[
        Path | None, typer.Option("--socket", metavar="PATH", help="Unix socket to listen on.", show_default="none")
    ] = None,
    socket_group: Annotated[
        bool, typer.Option("--socket-group/--socket-owner", help="Its mode: 0660, or 0600.")
    ] = False,
    tls_cert: Annotated[Path | None, _file("Certificate of the agent; with the next two: mutual TLS.")] = None,
    tls_key: Annotated[Path | None, _file("Its key.")] = None,
    client_ca: Annotated[Path | None, _file("Authority of the accepted client certificates.")] = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the agent of one node: caps with leases, telemetry."""
    _check_name(server)
    token, tls = read_secret(token_file), _mutual_tls(tls_cert, tls_key, client_ca)
    if act and DRIVERS[device].is_real and token is None and tls is None:
        raise InputError("--act: needs --token-file or mutual TLS")
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


def _check_name(server: str) -> None:
    """Reject a name that the guard's file could not contain."""
    try:
        TypeAdapter(Name).validate_python(server)
    except ValidationError as error:
        raise InputError(f"SERVER: must have 1 to 200 characters, got {len(server)}") from error


def _mutual_tls(certificate: Path | None, key: Path | None, authority: Path | None) -> ServerTls | None:
    """Require all three files or none, and check them before anything starts."""
    if certificate is None and key is None and authority is None:
        return None
    if certificate is None or key is None or authority is None:
        raise InputError("--tls-cert, --tls-key and --client-ca: all three are needed")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(authority)
    except OSError as error:
        raise InputError(f"--tls-cert, --tls-key, --client-ca: {error.strerror or error}") from error
    return ServerTls(certificate, key, authority)


def _listener(
    path: Path | None, *, group: bool, host: str, port: int, token: str | None, tls: ServerTls | None
) -> socket.socket:
    if path is not None:
        try:
            return unix_listener(path, mode=0o660 if group else 0o600)
        except OSError as error:
            raise InputError(f"cannot listen on {path}: {error.strerror or error}") from error
    listener = listen(host, port)
    if tls is None:
        require_loopback_or_token(listener, host=host, token=token)
    return listener


def _recording(settings: RecordingFile | None) -> AbstractContextManager[None] | None:
    """Return the recorder of `fleetwright faults record`, to run with the agent."""
    try:
        return record_in_background(recorder_of(settings.recording(), started_s=time.time())) if settings else None
    except OSError as error:
        raise InputError(f"--record: {error.strerror or error}") from error
    except FleetwrightError as error:
        raise InputError(f"--record: {error}") from error


@contextmanager
def _closing_on_failure(listener: socket.socket) -> Iterator[None]:
    try:
        yield
    except CommandError:
        listener.close()
        raise


def _where(listener: socket.socket, *, tls: ServerTls | None) -> str:
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
        raise InputError(f"--state-file {error}") from error
    except FleetwrightError as error:
        raise InputError(f"--device {driver}: {error}") from error
