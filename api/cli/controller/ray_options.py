"""Defines the options of the controller on Ray.  An upgrade keeps the setting of an absent option."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from api.client.transport import DEFAULT_URL
from deploy.ray_actor.messages import GpuSource

WATCH_SETTINGS = {
    "watch_hz": "hz",
    "watch_gpus": "gpus",
    "watch_send": "send",
    "watch_send_token_file": "send_token_file",
    "watch_folder": "folder",
    "watch_inbox": "inbox",
    "watch_ranks": "ranks_per_node",
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _name(given: str) -> str:
    if not _NAME.fullmatch(given):
        raise typer.BadParameter("expected 1 to 63 of a-z, 0-9 and '-', with no '-' at either end")
    return given


AddressOption = Annotated[
    str,
    typer.Option(
        "--address", metavar="ADDRESS", envvar="RAY_ADDRESS", help="Of the cluster: auto, HOST:PORT or ray://HOST:PORT."
    ),
]
NameOption = Annotated[str, typer.Option("--name", metavar="NAME", callback=_name, help="The controller's name.")]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", metavar="NAME", callback=_name, help="Ray's namespace of its actors.")
]
RuntimeEnvOption = Annotated[
    Path | None,
    typer.Option(
        "--runtime-env", metavar="FILE", help="Ray runtime_env of the controller's actor.", show_default="none"
    ),
]
UpOption = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=1.0, max=3600.0, help="For the new controller to start.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSettings:
    """Holds the settings of a controller that a command names; None: as they are."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            envvar="FLEETWRIGHT_URL",
            help="URL of the service, as the actor reaches it.",
            show_default=DEFAULT_URL,
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the API token on the actor's node; else FLEETWRIGHT_TOKEN[_FILE] there.",
            show_default=False,
        ),
    ] = None
    period_s: Annotated[
        float | None,
        typer.Option(
            "--period-s", metavar="SECONDS", min=0.1, max=3600.0, help="Between reconciles.", show_default="5"
        ),
    ] = None
    lease_s: Annotated[
        float | None,
        typer.Option(
            "--lease-s",
            metavar="SECONDS",
            min=1.0,
            max=3600.0,
            help="Duration of the lease; renewed at a third.",
            show_default="15",
        ),
    ] = None
    observe_only: Annotated[
        bool | None,
        typer.Option(
            "--observe-only/--no-observe-only",
            help="Observe and report only, whatever the targets' modes.",
            show_default="off",
        ),
    ] = None
    kubernetes: Annotated[
        bool | None,
        typer.Option(
            "--kubernetes/--no-kubernetes",
            help="Drive targets on Kubernetes too, on the actor's cluster.",
            show_default="off",
        ),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            metavar="FILE",
            help="--kubernetes, with this file of the actor's node.",
            show_default="none",
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=0,
            max=65_535,
            help="Of the actor's own /metrics; 0: none.",
            show_default="0",
        ),
    ] = None
    metrics_host: Annotated[
        str | None,
        typer.Option("--metrics-host", metavar="HOST", help="Address of /metrics.", show_default="127.0.0.1"),
    ] = None
    watch: Annotated[
        bool | None, typer.Option("--watch/--no-watch", help="Run a node actor on each node.", show_default="on")
    ] = None
    watch_hz: Annotated[
        float | None,
        typer.Option("--watch-hz", metavar="RATE", min=0.1, max=100.0, help="Polls per second.", show_default="4"),
    ] = None
    watch_gpus: Annotated[
        GpuSource | None,
        typer.Option("--watch-gpus", help="Read GPUs by the installed driver, or simulate them.", show_default="auto"),
    ] = None
    watch_send: Annotated[
        str | None,
        typer.Option(
            "--watch-send",
            metavar="URL",
            help="Send to this `faults monitor`, as `faults record`.",
            show_default="none",
        ),
    ] = None
    watch_send_token_file: Annotated[
        Path | None,
        typer.Option(
            "--watch-send-token-file", metavar="FILE", help="File with its secret, on each node.", show_default="none"
        ),
    ] = None
    watch_folder: Annotated[
        Path | None,
        typer.Option(
            "--watch-folder", metavar="DIR", help="Record into this folder of each node.", show_default="none"
        ),
    ] = None
    watch_inbox: Annotated[
        Path | None,
        typer.Option(
            "--watch-inbox", metavar="PATH", help="Unix socket of each node for reports of ranks.", show_default="none"
        ),
    ] = None
    watch_ranks: Annotated[
        int | None,
        typer.Option(
            "--watch-ranks", metavar="N", min=1, max=64, help="Most workers recorded per node.", show_default="8"
        ),
    ] = None

    def changes(self) -> dict[str, Any]:
        """Return the given settings by their names; `watch` is None without node actors."""
        given = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        watch = given.pop("watch", None)
        of_watch = {WATCH_SETTINGS[name]: given.pop(name) for name in WATCH_SETTINGS if name in given}
        if watch is False and of_watch:
            raise typer.BadParameter("--no-watch: takes no other --watch option")
        if watch is False:
            return given | {"watch": None}
        return given | ({"watch": of_watch} if watch or of_watch else {})
