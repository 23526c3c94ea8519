"""`fleetwright faults record`: what one node's sockets and processes say of a job, into a folder or to a watcher."""

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
from api.cli.common.errors import EXIT_BAD_INPUT, EXIT_NEGATIVE, CommandError
from api.cli.common.lazy_groups import new_app
from api.cli.common.log_level import LogLevel, LogLevelOption
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
        str, typer.Option(metavar="IP=INDEX,... | FILE", help="The job's nodes by address, this one too.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.", show_default="none")
    ] = None,
    node: Annotated[int, typer.Option(metavar="INDEX", min=0, help="This node's index.")] = 0,
    hz: Annotated[float, typer.Option(metavar="RATE", min=0.1, max=100.0, help="Looks at the sockets a second.")] = 4.0,
    netns: Annotated[
        str | None, typer.Option(metavar="NAME", help="Network namespace to look into.", show_default="this one")
    ] = None,
    pid: Annotated[
        list[str] | None,
        typer.Option(metavar="[RANK=]PID", help="Process of a rank; without --netns its namespace is looked into."),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.0, help="How long.", show_default="until told to end")
    ] = None,
    ignore_port: Annotated[
        list[int] | None, typer.Option(metavar="PORT", min=1, max=65_535, help="Leave out, as of the job's store.")
    ] = None,
    ranks_per_node: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Ranks of each node.")] = 1,
    inbox: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Unix socket for what ranks say of themselves.", show_default="none"),
    ] = None,
    flights: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where Flight Recorder dumps appear.", show_default="none")
    ] = None,
    probe: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            min=MIN_BYTES,
            max=MAX_BYTES,
            help="Send one-way probes of that size to both neighbours, by UDP.",
            show_default="none",
        ),
    ] = None,
    probe_every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=3600.0, help="How often each neighbour is probed.")
    ] = 0.5,
    probes_only: Annotated[
        bool,
        typer.Option(
            "--probes-only", help="Probes and nothing else: a process beside the recorder, which then has none."
        ),
    ] = False,
    infiniband: Annotated[bool, typer.Option("--infiniband", help="Counters of InfiniBand and RoCE ports.")] = False,
    dcgm: Annotated[
        str | None, typer.Option(metavar="URL", help="dcgm-exporter's metrics.", show_default="none")
    ] = None,
    xpu_timer: Annotated[
        str | None, typer.Option(metavar="URL", help="xpu_timer's metrics.", show_default="none")
    ] = None,
    ras: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="NCCL RAS, on one node of a job.", show_default="none")
    ] = None,
    send: Annotated[str | None, typer.Option(metavar="URL", help="Watcher to send to.", show_default="none")] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Secret that the watcher asks for.", show_default="none")
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="BYTES", min=100.0, max=1e6, help="Most bytes a second to the watcher.")
    ] = 1000.0,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> None:
    """Look at one node from outside the job, some times a second.

    Needs no right beyond the job's network namespace; entering another one by --netns or --pid needs CAP_SYS_ADMIN.
    """
    configure_logs(level=log_level)
    if output is None and send is None:
        raise CommandError("nowhere to record to: give --output DIR or --send URL", exit_code=EXIT_BAD_INPUT)
    if probes_only:
        seen = {"--inbox": inbox, "--flights": flights, "--infiniband": infiniband, "--dcgm": dcgm}
        _probes_alone(probe, asked=seen | {"--xpu-timer": xpu_timer, "--ras": ras})
    pids = _pids(pid or [], node=node, ranks_per_node=ranks_per_node)
    known = _peers(peers)
    if violation := known.violation_of(node):
        raise CommandError(f"--node {node}: {violation} (--peers)", exit_code=EXIT_BAD_INPUT)
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
        watcher=_url("--send", send),
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
        raise CommandError(f"--output {error}", exit_code=EXIT_BAD_INPUT) from error
    except RuleError as error:
        raise CommandError(f"--probe: {error}", exit_code=EXIT_BAD_INPUT) from error
    settle_memory()
    tally = recorder.run(_told_to_end(), duration_s=duration)
    note(f"{tally.polls} looks, {tally.observations} observations, {tally.late_polls} too late")
    for what, count in sorted({**tally.failures, **malformed.counts()}.items()):
        note(f"{count} times: {what}")


def _probes_alone(probe: int | None, *, asked: Mapping[str, object]) -> None:
    """What is asked for beside probes is a recorder's; `--pid` still says into which namespace to look."""
    if probe is None:
        raise CommandError("--probes-only: give --probe BYTES, the size of a train", exit_code=EXIT_BAD_INPUT)
    if others := [option for option, said in asked.items() if said]:
        message = f"--probes-only sends probes and nothing else: leave {', '.join(others)} to the node's recorder"
        raise CommandError(message, exit_code=EXIT_BAD_INPUT)


def _told_to_end() -> Event:
    """Set by the first SIGINT or SIGTERM: what was seen is written out."""
    stop = Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    return stop


def _peers(said: str) -> Peers:
    """Pairs themselves, or a file that holds them."""
    try:
        if "=" in said:
            return parse_peers(said)
        return parse_peers(Path(said).read_text(encoding="utf-8"))
    except RuleError as error:
        raise CommandError(
            *(f"--peers: {line}" for line in str(error).split("; ")), exit_code=EXIT_BAD_INPUT
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"--peers {said}: {getattr(error, 'strerror', None) or error}"
        raise CommandError(message, exit_code=EXIT_BAD_INPUT) from error


def _pids(said: list[str], *, node: int, ranks_per_node: int) -> dict[int, int]:
    """By rank; a process without a rank is the node's first."""
    found: dict[int, int] = {}
    for entry in said:
        left, sign, right = entry.partition("=")
        rank, number = (left, right) if sign else (str(node * ranks_per_node), left)
        if not (_whole(rank) and _whole(number) and int(number) > 0):
            raise CommandError(f"--pid {entry}: expected PID or RANK=PID", exit_code=EXIT_BAD_INPUT)
        found[int(rank)] = int(number)
    return found


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _url(option: str, said: str | None) -> str | None:
    """A URL that can be asked, or none."""
    if said is None:
        return None
    try:
        parts = urlsplit(said)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise CommandError(f"{option} {said}: expected http://HOST:PORT", exit_code=EXIT_BAD_INPUT)
    return said


def _address(said: str | None) -> tuple[str, int] | None:
    """`localhost:28028`, `[::1]:28028`, or none."""
    if said is None:
        return None
    host, _colon, port = said.rpartition(":")
    if not host or not _whole(port) or not 0 < int(port) < 65_536:
        raise CommandError(f"--ras {said}: expected HOST:PORT", exit_code=EXIT_BAD_INPUT)
    return host.strip("[]"), int(port)
