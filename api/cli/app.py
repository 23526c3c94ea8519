"""Joins all commands in one application, which turns every error into lines and an exit code."""
# ruff: noqa: PLC0415

import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated

import typer

from api.cli.common.console import note, print_line, show_unprintable_as_escapes
from api.cli.common.errors import EXIT_INTERRUPTED, error_lines, exit_code_of
from api.cli.common.lazy_groups import App, LazyCommand, LazyGroup, lazy_group, new_app
from fleet.errors import FleetwrightError

NAME = "fleetwright"
HELP = """Plan, place, cap and remediate GPU fleets.

Commands compute locally, from the shipped data and your files; with --url they use a service.  Results go to stdout,
everything else to stderr.  Exit codes: 0 success, 1 negative result, 2 wrong input.
"""


# Each of these functions imports the module of a command when it is called.


def _power(name: str) -> App:
    match name:
        case "simulate":
            from api.cli.power.simulate import app
        case "plan":
            from api.cli.power.plan import app
        case "fit":
            from api.cli.power.fit import app
        case "forecast":
            from api.cli.power.forecast import app
        case "trees":
            from api.cli.power.trees import app
        case "budgets":
            from api.cli.power.budgets import app
        case "admission-check":
            from api.cli.power.admission_check import app
        case "simulations":
            from api.cli.power.stored import simulations_app as app
        case "plans":
            from api.cli.power.stored import plans_app as app
        case _:
            raise LookupError(name)
    return app


def _faults(name: str) -> App:
    match name:
        case "replay":
            from api.cli.faults.replay import app
        case "simulate":
            from api.cli.faults.simulate import app
        case "record":
            from api.cli.faults.record import app
        case "monitor":
            from api.cli.faults.monitor import app
        case "paths":
            from api.cli.faults.paths import app
        case "simulations":
            from api.cli.faults.simulate import simulations_app as app
        case "diagnoses":
            from api.cli.faults.diagnoses import app
        case "quarantine":
            from api.cli.faults.quarantine import app
        case "forward":
            from api.cli.faults.forward import app
        case "health-events":
            from api.cli.faults.forward import events_app as app
        case _:
            raise LookupError(name)
    return app


def _profiles(name: str) -> App:
    match name:
        case "import":
            from api.cli.profiles.imports import import_app as app
        case "show":
            from api.cli.profiles.imports import show_app as app
        case "fit":
            from api.cli.profiles.fit import app
        case _:
            raise LookupError(name)
    return app


def _planning(name: str) -> App:
    match name:
        case "plan":
            from api.cli.plan.run import app
        case "plan export":
            from api.cli.plan.export import app
        case "sweep":
            from api.cli.plan.sweep import app
        case "place":
            from api.cli.place.group import app
        case "plans":
            from api.cli.plan.stored import plans_app as app
        case "sweeps":
            from api.cli.plan.sweep import sweeps_app as app
        case "placements":
            from api.cli.place.run import placements_app as app
        case _:
            raise LookupError(name)
    return app


def _catalogues(name: str) -> App:
    match name:
        case "gpus":
            from api.cli.catalogues.gpus import app
        case "models":
            from api.cli.catalogues.models import app
        case "offers":
            from api.cli.catalogues.offers import app
        case "topology":
            from api.cli.catalogues.topology import app
        case "stock":
            from api.cli.catalogues.stock import app
        case _:
            raise LookupError(name)
    return app


def _processes(name: str) -> App:
    match name:
        case "demo":
            from api.cli.demo.run import app
        case "controller":
            from api.cli.controller.run import app
        case "remediate":
            from api.cli.remediate.run import app
        case "guard":
            from api.cli.power.guard import app
        case "agent":
            from api.cli.agent.run import app
        case "router":
            from api.cli.router.run import app
        case _:
            raise LookupError(name)
    return app


def _installation(name: str) -> App:
    match name:
        case "serve":
            from api.cli.serve.run import app
        case "migrate":
            from api.cli.serve.migrate import app
        case "backup":
            from api.cli.admin.backup import backup_app as app
        case "restore":
            from api.cli.admin.backup import restore_app as app
        case "gc":
            from api.cli.admin.gc import app
        case "doctor":
            from api.cli.doctor.run import app
        case "worker":
            from api.cli.worker.run import app
        case _:
            raise LookupError(name)
    return app


def _service(name: str) -> App:
    match name:
        case "targets":
            from api.cli.targets.group import app
        case "planning-loops":
            from api.cli.planning_loops.group import app
        case "freeze":
            from api.cli.targets.freeze import freeze_app as app
        case "thaw":
            from api.cli.targets.freeze import thaw_app as app
        case "jobs":
            from api.cli.jobs.group import app
        case "projects":
            from api.cli.admin.projects import app
        case "nodes":
            from api.cli.nodes.show import app
        case "events":
            from api.cli.events.follow import app
        case "tokens":
            from api.cli.admin.tokens import app
        case "audit":
            from api.cli.admin.audit import app
        case _:
            raise LookupError(name)
    return app


POWER = {
    "simulate": LazyCommand(_power, "Simulate a row of servers behind a budget, and count its brakes."),
    "plan": LazyCommand(_power, "Choose clocks and budgets for a power tree."),
    "fit": LazyCommand(_power, "Fit curves of power and speed to measured tables."),
    "forecast": LazyCommand(_power, "Forecast the power of a row with quantiles."),
    "trees": LazyCommand(_power, "Check power trees, and keep them on a service."),
    "budgets": LazyCommand(_power, "Read and set the budgets that a service has in force."),
    "admission-check": LazyCommand(_power, "Admit Kueue's workloads within the power of rows."),
    "simulations": LazyCommand(_power, "Read the simulated rows that a service stores."),
    "plans": LazyCommand(_power, "Read the power plans that a service stores."),
}
FAULTS = {
    "replay": LazyCommand(_faults, "Diagnose a recorded or stopped job, or check a bundle."),
    "simulate": LazyCommand(_faults, "Measure the detectors on a simulated cluster with known faults."),
    "record": LazyCommand(_faults, "Sample one node from outside the job."),
    "monitor": LazyCommand(_faults, "Diagnose a live job from its recorders."),
    "paths": LazyCommand(_faults, "Assign a path to each connection of a job."),
    "simulations": LazyCommand(_faults, "Read the simulations that a service stores."),
    "diagnoses": LazyCommand(_faults, "Report, list and replay the diagnoses of a service."),
    "quarantine": LazyCommand(_faults, "Show the policy and its nodes; approve, release and cordon."),
    "forward": LazyCommand(_faults, "Send health events to NVSentinel, Slurm and a webhook."),
    "health-events": LazyCommand(_faults, "List the health events, and their delivery."),
}
PROFILES = {
    "import": LazyCommand(_profiles, "Merge benchmark results into one document."),
    "show": LazyCommand(_profiles, "Show the coverage of a document of measurements."),
    "fit": LazyCommand(_profiles, "Fit the performance model's coefficients to measurements."),
}
COMMANDS: Mapping[str, LazyCommand | LazyGroup] = {
    "plan": LazyCommand(_planning, "Find the cheapest GPUs that serve a load."),
    "plan export": LazyCommand(_planning, "Write a plan as engine flags or as Kubernetes manifests."),
    "sweep": LazyCommand(_planning, "Show what a load costs as rate, SLO, prices or power change."),
    "place": LazyCommand(_planning, "Place experts on GPUs: even load, little traffic, few moves."),
    "power": LazyGroup("Power: simulated rows, caps, budgets, forecasts.", POWER),
    "faults": LazyGroup("Faults: name the bad node, and take it out safely.", FAULTS),
    "gpus": LazyCommand(_catalogues, "GPUs: memory, bandwidth, compute and power of each type."),
    "models": LazyCommand(_catalogues, "Models: parameters, compute and KV cache of each model."),
    "offers": LazyCommand(_catalogues, "Offers: available GPUs, their regions and prices."),
    "profiles": LazyGroup("Profiles: measurements of serving engines.", PROFILES),
    "topology": LazyCommand(_catalogues, "Topology: sites, power, network and nodes."),
    "stock": LazyCommand(_catalogues, "Stock: the GPUs that plans may use, as counted in clusters."),
    "demo": LazyCommand(_processes, "Play a day of a chat on simulated GPUs: plan, apply, measure."),
    "serve": LazyCommand(_installation, "Serve the API, on SQLite with a controller and a worker."),
    "migrate": LazyCommand(_installation, "Migrate the schema of a database."),
    "backup": LazyCommand(_installation, "Back a database up into a file, while it is in use."),
    "restore": LazyCommand(_installation, "Restore a database from a backup."),
    "gc": LazyCommand(_installation, "Remove old rows from a database."),
    "doctor": LazyCommand(_installation, "Check an installation, and print what is wrong and its repair."),
    "controller": LazyCommand(_processes, "Apply plans to running applications."),
    "remediate": LazyCommand(_processes, "Drain bad nodes and move their training to spares."),
    "guard": LazyCommand(_processes, "Keep a row under its power budget, every two seconds."),
    "agent": LazyCommand(_processes, "Run the agent of one node: caps with leases, telemetry."),
    "worker": LazyCommand(_installation, "Do the jobs of the service: plans, placements, simulations."),
    "router": LazyCommand(_processes, "Send each request to the deployment that its plan assigns."),
    "plans": LazyCommand(_planning, "Read the plans that a service stores."),
    "sweeps": LazyCommand(_planning, "Read the sweeps that a service stores."),
    "placements": LazyCommand(_planning, "Read the placements that a service stores."),
    "jobs": LazyCommand(_service, "Follow and cancel the work that a service does."),
    "nodes": LazyCommand(_service, "List the nodes of the fleet with their state, or show one."),
    "events": LazyCommand(_service, "Print what changes on a service, oldest first."),
    "targets": LazyCommand(_service, "Register running applications and assign plans to them."),
    "planning-loops": LazyCommand(_service, "Plan targets continuously from their traffic."),
    "freeze": LazyCommand(_service, "Stop every write to every target, at once."),
    "thaw": LazyCommand(_service, "Lift the freeze."),
    "projects": LazyCommand(_service, "List, set and delete projects and their quotas."),
    "tokens": LazyCommand(_service, "Create, list and revoke API tokens."),
    "audit": LazyCommand(_service, "Read and verify the audit."),
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
