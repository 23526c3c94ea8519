"""Defines the options of the controller on Ray.  An upgrade keeps the setting of an absent option."""

import re
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from api.client.transport import DEFAULT_URL
from deploy.ray_actor.messages import GpuSource

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
RemoteUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="FLEETWRIGHT_URL",
        help="URL of the service, as the actor reaches it.",
        show_default=DEFAULT_URL,
    ),
]
RemoteTokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the API token on the actor's node; else FLEETWRIGHT_TOKEN[_FILE] there.",
        show_default=False,
    ),
]
PeriodOption = Annotated[
    float | None,
    typer.Option("--period-s", metavar="SECONDS", min=0.1, max=3600.0, help="Between reconciles.", show_default="5"),
]
LeaseOption = Annotated[
    float | None,
    typer.Option(
        "--lease-s",
        metavar="SECONDS",
        min=1.0,
        max=3600.0,
        help="Duration of the lease; renewed at a third.",
        show_default="15",
    ),
]
KubernetesOption = Annotated[
    bool | None,
    typer.Option(
        "--kubernetes/--no-kubernetes",
        help="Drive RayClusters too, on the actor's Kubernetes cluster.",
        show_default="off",
    ),
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", metavar="FILE", help="--kubernetes, with this file of the actor's node.", show_default="none"
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65_535,
        help="Of the actor's own /metrics; 0: none.",
        show_default="0",
    ),
]
MetricsHostOption = Annotated[
    str | None,
    typer.Option("--metrics-host", metavar="HOST", help="Address of /metrics.", show_default="127.0.0.1"),
]
ObserveOnlyOption = Annotated[
    bool | None,
    typer.Option(
        "--observe-only/--no-observe-only",
        help="Observe and report only, whatever the targets' modes.",
        show_default="off",
    ),
]
WatchOption = Annotated[
    bool | None, typer.Option("--watch/--no-watch", help="Run a node actor on each node.", show_default="on")
]
HzOption = Annotated[
    float | None,
    typer.Option("--watch-hz", metavar="RATE", min=0.1, max=100.0, help="Looks a second.", show_default="4"),
]
GpusOption = Annotated[
    GpuSource | None,
    typer.Option("--watch-gpus", help="Read GPUs by the installed driver, or simulate them.", show_default="auto"),
]
SendOption = Annotated[
    str | None,
    typer.Option(
        "--watch-send",
        metavar="URL",
        help="Send to this `faults monitor`, as `faults record`.",
        show_default="none",
    ),
]
SendTokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--watch-send-token-file", metavar="FILE", help="File with its secret, on each node.", show_default="none"
    ),
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--watch-folder", metavar="DIR", help="Record into this folder of each node.", show_default="none"),
]
InboxOption = Annotated[
    Path | None,
    typer.Option(
        "--watch-inbox", metavar="PATH", help="Unix socket of each node for reports of ranks.", show_default="none"
    ),
]
RanksOption = Annotated[
    int | None,
    typer.Option("--watch-ranks", metavar="N", min=1, max=64, help="Most workers recorded per node.", show_default="8"),
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


def given_settings(
    *,
    url: RemoteUrlOption = None,
    token_file: RemoteTokenFileOption = None,
    period_s: PeriodOption = None,
    lease_s: LeaseOption = None,
    observe_only: ObserveOnlyOption = None,
    kubernetes: KubernetesOption = None,
    kubeconfig: KubeconfigOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = None,
    watch: WatchOption = None,
    watch_hz: HzOption = None,
    watch_gpus: GpusOption = None,
    watch_send: SendOption = None,
    watch_send_token_file: SendTokenFileOption = None,
    watch_folder: FolderOption = None,
    watch_inbox: InboxOption = None,
    watch_ranks: RanksOption = None,
) -> dict[str, Any]:
    of_watch = _not_none(
        hz=watch_hz,
        gpus=watch_gpus,
        send=watch_send,
        send_token_file=watch_send_token_file,
        folder=watch_folder,
        inbox=watch_inbox,
        ranks_per_node=watch_ranks,
    )
    if watch is False and of_watch:
        raise typer.BadParameter("--no-watch: takes no other --watch option")
    changes = _not_none(
        url=url,
        token_file=token_file,
        period_s=period_s,
        lease_s=lease_s,
        observe_only=observe_only,
        kubernetes=kubernetes,
        kubeconfig=kubeconfig,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
    )
    if watch is False:
        return changes | {"watch": None}
    return changes | ({"watch": of_watch} if watch or of_watch else {})


def taking_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command the options of `given_settings` in place of its parameter `changes`."""
    settings = signature(given_settings).parameters
    options = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for own in signature(command).parameters.values()
        for parameter in (settings.values() if own.name == "changes" else (own,))
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        command(changes=given_settings(**{name: given.pop(name) for name in settings}), **given)

    run.__signature__ = Signature(options)  # type: ignore[attr-defined] # what typer reads
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _not_none(**settings: Any) -> dict[str, Any]:
    return {field: value for field, value in settings.items() if value is not None}
