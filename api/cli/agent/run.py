"""`fleetwright agent`: the power guard's agent on one node, which caps the node's GPUs."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from pydantic import TypeAdapter, ValidationError

from api.cli.agent.options import (
    ActOption,
    BoardOption,
    BoardsOption,
    ClientCaOption,
    DeviceOption,
    GuardedOption,
    IgnoredOption,
    RecordOption,
    RedfishBasicOption,
    RedfishCaOption,
    RedfishLoginOption,
    RedfishUrlOption,
    ServerArgument,
    SocketGroupOption,
    SocketOption,
    StateFileOption,
    TlsCertOption,
    TlsKeyOption,
    TokenFileOption,
)
from api.cli.common.console import note
from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.log_level import LogLevel, LogLevelOption
from api.cli.common.sockets import HostOption, listen, read_secret, refuse_strangers
from deploy.common.http_server import MutualTls, unix_listener
from deploy.common.logs import configure_logs
from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.device import Device
from deploy.node_agent.gpu.factory import DriverName, DriverOptions, RedfishAccess, Simulation, node_of, open_gpus
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.gpu.state_file import StateFileError
from deploy.node_agent.routes import run_agent
from deploy.node_agent.schemas import Name, PhaseName
from deploy.node_agent.simulated import SimulatedDevice
from deploy.telemetry.background import record_in_background
from deploy.telemetry.config import RecordingFile
from deploy.telemetry.factory import recorder_of
from fleet.errors import FleetwrightError
from power.controls import NodeClocks
from power.testing import ActuatorFaults

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
    phase: Annotated[PhaseName, typer.Option(help="What the simulated server is doing.")] = PhaseName.TOKEN,
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
    if act and device.is_real and token is None and tls is None:
        raise _bad("--act: needs --token-file or mutual TLS")
    recording = read_file(record, RecordingFile) if record else None
    listener = _listener(unix_socket, group=socket_group, host=host, port=port, token=token, tls=tls)
    configure_logs(level=log_level)
    safe, node = NodeClocks(safe_token, safe_prompt), None
    held: Device
    driver = device.driver
    if driver is None:
        held = _simulated(server, phase=phase, ignored_share=ignored_share, seed=seed)
    else:
        access = RedfishAccess(url=redfish_url, login=redfish_login, authority=redfish_ca, basic=redfish_basic)
        simulation = Simulation(server=server, board=gpu, count=gpus, ignored_share=ignored_share, seed=seed)
        acting = act or not device.is_real
        with _closing_on_failure(listener):
            options = DriverOptions(redfish=access, simulation=simulation)
            held = node = _gpu_node(driver, options, acting=acting, state_file=state_file, safe=safe)
    holder = NodeAgent(server=server, device=held, safe=safe, now_s=time.monotonic, guarded=guarded)
    observing = "" if node is None or node.cap_controller.acting else ", observing: --act sets caps"
    note(f"agent of {server} on {_where(listener, tls=tls)}, device {device}{observing}")
    with _closing_on_failure(listener):
        beside = _recording(recording)
    asyncio.run(run_agent(holder, listener, token=token, gpus=node, tls=tls, beside=beside))


def _bad(message: str) -> CommandError:
    return CommandError(message, exit_code=EXIT_BAD_INPUT)


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


def _simulated(server: str, *, phase: PhaseName, ignored_share: float, seed: int) -> SimulatedDevice:
    return SimulatedDevice(
        name=server,
        now_s=time.monotonic,
        rng=np.random.default_rng(seed),
        phase=phase.phase,
        faults=ActuatorFaults(ignored_share=ignored_share),
    )


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
