"""`fleetwright controller start|stop|upgrade|list`: run the controller as a detached actor of a Ray cluster."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import RootModel, ValidationError

from api.cli.common.console import note, print_line
from api.cli.common.errors import InputError
from api.cli.common.files import read_file
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.ray_session import joined
from api.cli.common.tables import Column, Table, moment, number, print_table
from api.cli.controller.ray_options import (
    AddressOption,
    GivenSettings,
    NameOption,
    NamespaceOption,
    RuntimeEnvOption,
    UpOption,
)
from api.client.tokens import TOKEN_VARIABLE
from deploy.ray_actor.lifecycle import Lifecycle, ListedController, Outcome, Timeouts, settings_of
from deploy.ray_actor.messages import ControllerReport
from fleet.documents import dotted, validation_problems

COLUMNS = (
    Column("controller"),
    Column("version"),
    Column("node"),
    Column("state"),
    Column("role"),
    moment("leader since"),
    number("reconciles"),
    Column("node actors"),
    Column("message"),
)


def start(
    given: GivenSettings,
    address: AddressOption = "auto",
    name: NameOption = "controller",
    namespace: NamespaceOption = "fleetwright",
    runtime_env: RuntimeEnvOption = None,
    up_s: UpOption = 60.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Start a controller on a Ray cluster, with a node actor on each node.

    The actor outlives this command, and Ray restarts it whenever it dies.  Files and URLs are those of the cluster's
    nodes, which need this package.  A repeated command changes nothing.
    """
    environment = _runtime_env(runtime_env)
    with _wrong_settings():
        settings = settings_of({}, given.changes())
    with joined(address, namespace) as cluster:
        outcome = Lifecycle(cluster, timeouts=Timeouts(up_s=up_s)).start(name, settings, runtime_env=environment)
    _print_outcome(outcome, "started" if outcome.changed else "already runs", output)


def stop(
    address: AddressOption = "auto",
    name: NameOption = "controller",
    namespace: NamespaceOption = "fleetwright",
    output: FormatOption = Format.TABLE,
) -> None:
    """Stop a controller on a Ray cluster, and its node actors.

    The controller releases its lease, so that another one leads at once.  Without a controller the command succeeds.
    """
    with joined(address, namespace) as cluster:
        stopped = Lifecycle(cluster).stop(name)
    if output is Format.JSON:
        print_json({"name": name, "stopped": [str(host) for host in stopped]})
    else:
        print_line(f"stopped {', '.join(map(str, stopped))}" if stopped else f"no controller {name} runs")


def upgrade(
    given: GivenSettings,
    address: AddressOption = "auto",
    name: NameOption = "controller",
    namespace: NamespaceOption = "fleetwright",
    runtime_env: RuntimeEnvOption = None,
    up_s: UpOption = 60.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Replace a controller by the installed version, or by other settings.

    The new controller starts beside the old one, which then hands over.  Where the new one does not start, it is
    removed and the old one continues.  Other settings stay unchanged.
    """
    environment, changes = _runtime_env(runtime_env), given.changes()
    with _wrong_settings(), joined(address, namespace) as cluster:
        outcome = Lifecycle(cluster, timeouts=Timeouts(up_s=up_s)).upgrade(name, changes, runtime_env=environment)
    _print_outcome(outcome, "took over", output)


def list_controllers(
    address: AddressOption = "auto", namespace: NamespaceOption = "fleetwright", output: FormatOption = Format.TABLE
) -> None:
    """List the controllers on a Ray cluster with their reports."""
    with joined(address, namespace) as cluster:
        listed = Lifecycle(cluster).listing()
    if output is Format.JSON:
        print_json({"controllers": [_json(each) for each in listed]})
        return
    print_table(Table(COLUMNS, map(_row, listed)))
    for each in listed:
        _note_node_actors(each)


@contextmanager
def _wrong_settings() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        lines = (f"{dotted(path)}: {message}" for path, message in validation_problems(error))
        raise InputError(*lines) from error


class _RuntimeEnv(RootModel[dict[str, Any]]):
    """Holds Ray's runtime_env, which Ray validates."""


def _runtime_env(path: Path | None) -> Mapping[str, Any] | None:
    """Read the runtime_env.  It must not contain a token: Ray shows it in its dashboard."""
    if path is None:
        return None
    environment = read_file(path, _RuntimeEnv).root
    variables = environment.get("env_vars")
    if isinstance(variables, Mapping) and TOKEN_VARIABLE in variables:
        message = f"{path}: env_vars: {TOKEN_VARIABLE} would be shown in Ray's dashboard; use --token-file"
        raise InputError(message)
    return environment


def _print_outcome(outcome: Outcome, verb: str, output: Format) -> None:
    report = outcome.report
    if output is Format.JSON:
        print_json({"name": str(outcome.name), "changed": outcome.changed, **report.model_dump(mode="json")})
        return
    print_line(f"{outcome.name} {verb}: version {report.version}, role {report.role}")


def _json(listed: ListedController) -> dict[str, Any]:
    report = None if listed.report is None else listed.report.model_dump(mode="json")
    return {"name": str(listed.name), "node": listed.node_name, "message": listed.message, "report": report}


def _row(listed: ListedController) -> tuple[object, ...]:
    report = listed.report
    if report is None:
        return (listed.name, None, None, "no response", None, None, None, None, listed.message)
    cells = (report.version, listed.node_name, report.state, report.role, report.since, report.reconciles)
    return (listed.name, *cells, _node_actors(report), listed.message)


def _node_actors(report: ControllerReport) -> str | None:
    """Return `RESPONDING/ALL` node actors; None where there are none."""
    if report.settings.get("watch") is None:
        return None
    return f"{sum(actor.responds for actor in report.node_actors)}/{len(report.node_actors)}"


def _note_node_actors(listed: ListedController) -> None:
    for actor in listed.report.node_actors if listed.report else ():
        if not actor.responds:
            note(f"{actor.node_name}: its node actor does not respond")
        if actor.stopped:
            note(f"{actor.node_name}: {actor.stopped} of {len(actor.workers)} workers are stopped")
        if actor.message:
            note(f"{actor.node_name}: {actor.message}")


COMMANDS: Mapping[str, Callable[..., None]] = {
    "start": start,
    "stop": stop,
    "upgrade": upgrade,
    "list": list_controllers,
}
