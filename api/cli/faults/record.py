"""`fleetwright faults record`: sample a node's sockets and processes for a job, into a folder or to a fault monitor."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Annotated
from urllib.parse import urlsplit

import typer

from api.cli.common.console import note
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import LogLevel, LogLevelOption
from api.cli.common.sockets import read_secret
from deploy.common.logs import configure_logs
from deploy.telemetry.factory import HELD_S, Recording, recorder_of, settle_memory
from deploy.telemetry.folder import OtherRunError
from deploy.telemetry.netlink import namespace_path
from deploy.telemetry.peers import Peers, parse_peers
from deploy.telemetry.ports import SYSFS
from deploy.telemetry.prober import MAX_BYTES, MIN_BYTES
from faults.readers import ParseErrors
from fleet.documents import RuleError

app = new_app()


@app.command()
def record(
    peers: Annotated[
        str, typer.Option(metavar="IP=INDEX,... | FILE", help="Addresses of the job's nodes, including this one.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.", show_default="none")
    ] = None,
    node: Annotated[int, typer.Option(metavar="INDEX", min=0, help="This node's index.")] = 0,
    hz: Annotated[float, typer.Option(metavar="RATE", min=0.1, max=100.0, help="Socket samples per second.")] = 4.0,
    netns: Annotated[
        str | None, typer.Option(metavar="NAME", help="Network namespace to sample.", show_default="this one")
    ] = None,
    pid: Annotated[
        list[str] | None,
        typer.Option(metavar="[RANK=]PID", help="Process of a rank; without --netns its namespace is sampled."),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.0, help="Duration.", show_default="until SIGINT or SIGTERM")
    ] = None,
    ignore_port: Annotated[
        list[int] | None,
        typer.Option(metavar="PORT", min=1, max=65_535, help="Ignore this port, e.g. of the job's store."),
    ] = None,
    ranks_per_node: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Ranks of each node.")] = 1,
    inbox: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Unix socket for the reports of ranks.", show_default="none"),
    ] = None,
    flights: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of Flight Recorder dumps.", show_default="none")
    ] = None,
    probe: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            min=MIN_BYTES,
            max=MAX_BYTES,
            help="Send one-way UDP probes of this size to both neighbours.",
            show_default="none",
        ),
    ] = None,
    probe_every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=3600.0, help="Interval of probes to each neighbour.")
    ] = 0.5,
    probes_only: Annotated[
        bool,
        typer.Option("--probes-only", help="Only send probes, as a process beside a recorder without probes."),
    ] = False,
    infiniband: Annotated[
        bool, typer.Option("--infiniband", help="Read the counters of InfiniBand and RoCE ports.")
    ] = False,
    dcgm: Annotated[
        str | None, typer.Option(metavar="URL", help="Metrics of dcgm-exporter.", show_default="none")
    ] = None,
    xpu_timer: Annotated[
        str | None, typer.Option(metavar="URL", help="Metrics of xpu_timer.", show_default="none")
    ] = None,
    ras: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="NCCL RAS; only on one node of a job.", show_default="none")
    ] = None,
    send: Annotated[
        str | None, typer.Option(metavar="URL", help="Fault monitor to send to.", show_default="none")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Token that the fault monitor requires.", show_default="none")
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="BYTES", min=100.0, max=1e6, help="Limit on bytes per second to the fault monitor.")
    ] = 1000.0,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> None:
    """Sample one node from outside the job.

    Needs no privilege beyond the job's network namespace; --netns and --pid for another one need CAP_SYS_ADMIN.
    """
    configure_logs(level=log_level)
    if output is None and send is None:
        raise InputError("nowhere to record to: give --output DIR or --send URL")
    if probes_only:
        recorder_options = {"--inbox": inbox, "--flights": flights, "--infiniband": infiniband, "--dcgm": dcgm}
        _probes_alone(probe, options=recorder_options | {"--xpu-timer": xpu_timer, "--ras": ras})
    pids = _pids(pid or [], node=node, ranks_per_node=ranks_per_node)
    known = _peers(peers)
    if violation := known.violation_of(node):
        raise InputError(f"--node {node}: {violation} (--peers)")
    recording = Recording(
        node=node,
        peers=known,
        period_s=1.0 / hz,
        namespace=namespace_path(name=netns, pid=next(iter(pids.values()), None)),
        pid_of=pids,
        ranks_per_node=ranks_per_node,
        ignored_ports=frozenset(ignore_port or ()),
        inbox=inbox,
        probe_bytes=probe,
        probe_every_s=probe_every,
        probes_only=probes_only,
        infiniband=SYSFS if infiniband else None,
        flights=flights,
        dcgm=_url("--dcgm", dcgm),
        xpu_timer=_url("--xpu-timer", xpu_timer),
        ras=_address(ras),
        folder=output,
        monitor_url=_url("--send", send),
        token=read_secret(token_file),
        budget_bytes_per_s=budget,
        held_s=HELD_S,
    )
    malformed = ParseErrors()
    try:
        recorder = recorder_of(recording, started_s=time.time(), tally=malformed)
    except OSError as error:
        raise CommandError(f"cannot record: {error.strerror or error}", exit_code=EXIT_NEGATIVE) from error
    except OtherRunError as error:
        raise InputError(f"--output {error}") from error
    except RuleError as error:
        raise InputError(f"--probe: {error}") from error
    settle_memory()
    tally = recorder.run(_stop_event(), duration_s=duration)
    note(f"{tally.polls} polls, {tally.observations} observations, {tally.late_polls} late")
    for failure, count in sorted({**tally.failures, **malformed.counts()}.items()):
        note(f"{count} times: {failure}")


def _probes_alone(probe: int | None, *, options: Mapping[str, object]) -> None:
    """Refuse options of a recorder; `--pid` may still give the namespace."""
    if probe is None:
        raise InputError("--probes-only: give --probe BYTES, the size of a train")
    if others := [option for option, value in options.items() if value]:
        message = f"--probes-only only sends probes: give {', '.join(others)} to the node's recorder"
        raise InputError(message)


def _stop_event() -> Event:
    """Return an event that the first SIGINT or SIGTERM sets; the recorder then writes the rest and stops."""
    stop = Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    return stop


def _peers(text: str) -> Peers:
    """Parse the pairs, or the file that contains them."""
    try:
        if "=" in text:
            return parse_peers(text)
        return parse_peers(Path(text).read_text(encoding="utf-8"))
    except RuleError as error:
        raise InputError(*(f"--peers: {line}" for line in str(error).split("; "))) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--peers {text}: {getattr(error, 'strerror', None) or error}") from error


def _pids(options: list[str], *, node: int, ranks_per_node: int) -> dict[int, int]:
    """Return processes by rank; a process without a rank belongs to the node's first rank."""
    found: dict[int, int] = {}
    for entry in options:
        left, sign, right = entry.partition("=")
        rank, number = (left, right) if sign else (str(node * ranks_per_node), left)
        if not (_whole(rank) and _whole(number) and int(number) > 0):
            raise InputError(f"--pid {entry}: expected PID or RANK=PID")
        found[int(rank)] = int(number)
    return found


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _url(option: str, value: str | None) -> str | None:
    """Return a valid URL; None without a value."""
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError(f"{option} {value}: expected http://HOST:PORT")
    return value


def _address(value: str | None) -> tuple[str, int] | None:
    """Parse `localhost:28028` or `[::1]:28028`; None without a value."""
    if value is None:
        return None
    host, _colon, port = value.rpartition(":")
    if not host or not _whole(port) or not 0 < int(port) < 65_536:
        raise InputError(f"--ras {value}: expected HOST:PORT")
    return host.strip("[]"), int(port)
