"""Joins all commands in one application, which turns every error into lines and an exit code."""

import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated

import typer

from api.cli.common.console import note, print_line, show_unprintable_as_escapes
from api.cli.common.errors import EXIT_INTERRUPTED, error_lines, exit_code_of
from api.cli.common.lazy_groups import LazyCommand, LazyGroup, lazy_group, new_app
from fleet.errors import FleetwrightError

NAME = "fleetwright"
HELP = """Plan, place, cap and remediate GPU fleets.

Commands compute locally, from the shipped data and your files; with --url they use a service.  Results go to stdout,
everything else to stderr.  Exit codes: 0 success, 1 negative result, 2 wrong input.
"""

POWER = {
    "simulate": LazyCommand(
        "api.cli.power.simulate", "Simulate a row of servers behind a budget, and count its brakes."
    ),
    "plan": LazyCommand("api.cli.power.plan", "Choose clocks and budgets for a power tree."),
    "fit": LazyCommand("api.cli.power.fit", "Fit curves of power and speed to measured tables."),
    "forecast": LazyCommand("api.cli.power.forecast", "Forecast the power of a row with quantiles."),
    "trees": LazyCommand("api.cli.power.trees", "Check power trees, and keep them on a service."),
    "budgets": LazyCommand("api.cli.power.budgets", "Read and set the budgets that a service has in force."),
    "simulations": LazyCommand(
        "api.cli.power.stored", "Read the simulated rows that a service stores.", "simulations_app"
    ),
    "plans": LazyCommand("api.cli.power.stored", "Read the power plans that a service stores.", "plans_app"),
}
FAULTS = {
    "replay": LazyCommand("api.cli.faults.replay", "Diagnose a recorded job, or check a bundle."),
    "simulate": LazyCommand(
        "api.cli.faults.simulate", "Measure the detectors on a simulated cluster with known faults."
    ),
    "record": LazyCommand("api.cli.faults.record", "Sample one node from outside the job."),
    "monitor": LazyCommand("api.cli.faults.monitor", "Diagnose a live job from its recorders."),
    "paths": LazyCommand("api.cli.faults.paths", "Assign a path to each connection of a job."),
    "simulations": LazyCommand(
        "api.cli.faults.simulate", "Read the simulations that a service stores.", "simulations_app"
    ),
    "diagnoses": LazyCommand("api.cli.faults.diagnoses", "Report, list and replay the diagnoses of a service."),
    "quarantine": LazyCommand(
        "api.cli.faults.quarantine", "Show the policy and its nodes; approve, release and cordon."
    ),
}
PROFILES = {
    "import": LazyCommand("api.cli.profiles.imports", "Merge benchmark results into one document.", "import_app"),
    "show": LazyCommand("api.cli.profiles.imports", "Show the coverage of a document of measurements.", "show_app"),
    "fit": LazyCommand("api.cli.profiles.fit", "Fit the performance model's coefficients to measurements."),
}
COMMANDS: Mapping[str, LazyCommand | LazyGroup] = {
    "plan": LazyCommand("api.cli.plan.run", "Find the cheapest GPUs that serve a load."),
    "sweep": LazyCommand("api.cli.plan.sweep", "Show what a load costs as rate, SLO, prices or power change."),
    "place": LazyCommand("api.cli.place.group", "Place experts on GPUs: even load, little traffic, few moves."),
    "power": LazyGroup("Power: simulated rows, caps, budgets, forecasts.", POWER),
    "faults": LazyGroup("Faults: name the bad node, and take it out safely.", FAULTS),
    "gpus": LazyCommand("api.cli.catalogues.gpus", "GPUs: memory, bandwidth, compute and power of each type."),
    "models": LazyCommand("api.cli.catalogues.models", "Models: parameters, compute and KV cache of each model."),
    "offers": LazyCommand("api.cli.catalogues.offers", "Offers: available GPUs, their regions and prices."),
    "profiles": LazyGroup("Profiles: measurements of serving engines.", PROFILES),
    "topology": LazyCommand("api.cli.catalogues.topology", "Topology: sites, power, network and nodes."),
    "demo": LazyCommand("api.cli.demo.run", "Play a day of a chat on simulated GPUs: plan, apply, measure."),
    "serve": LazyCommand("api.cli.serve.run", "Serve the API, on SQLite with the controller inside."),
    "migrate": LazyCommand("api.cli.serve.migrate", "Migrate the schema of a database."),
    "controller": LazyCommand("api.cli.controller.run", "Apply plans to running applications."),
    "remediate": LazyCommand("api.cli.remediate.run", "Drain bad nodes and move their training to spares."),
    "guard": LazyCommand("api.cli.power.guard", "Keep a row under its power budget, every two seconds."),
    "agent": LazyCommand("api.cli.agent.run", "Run the agent of one node: caps with leases, telemetry."),
    "router": LazyCommand("api.cli.router.run", "Send each request to the deployment that its plan assigns."),
    "plans": LazyCommand("api.cli.plan.run", "Read the plans that a service stores.", "plans_app"),
    "placements": LazyCommand("api.cli.place.run", "Read the placements that a service stores.", "placements_app"),
    "targets": LazyCommand("api.cli.targets.group", "Register running applications and assign plans to them."),
    "freeze": LazyCommand("api.cli.targets.freeze", "Stop every write to every target, at once.", "freeze_app"),
    "thaw": LazyCommand("api.cli.targets.freeze", "Lift the freeze.", "thaw_app"),
    "tokens": LazyCommand("api.cli.admin.tokens", "Create, list and revoke API tokens."),
    "audit": LazyCommand("api.cli.admin.audit", "Read and verify the audit."),
}

app = new_app(cls=lazy_group(COMMANDS), summary=HELP, add_completion=True)


def _show_version(on: bool) -> None:
    if on:
        print_line(f"{NAME} {version(NAME)}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Options before any command."""


def main() -> None:
    sys.exit(_run())


def _run() -> int:
    show_unprintable_as_escapes()
    try:
        code: int | None = app(prog_name=NAME, standalone_mode=False)
    except FleetwrightError as error:
        for line in error_lines(error):
            note(f"{NAME}: {line}")
        return exit_code_of(error)
    except typer.TyperException as error:
        note(f"{NAME}: {_misuse(error)}")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    return code or 0


def _misuse(error: typer.TyperException) -> str:
    """Return the error about options and arguments in one line, with the help command."""
    message = " ".join(error.format_message().split()).rstrip(".").replace(": Value error, ", ": ")
    context = getattr(error, "ctx", None)
    where = f"; see {context.command_path} --help" if context is not None else ""
    return message[:1].lower() + message[1:] + where
