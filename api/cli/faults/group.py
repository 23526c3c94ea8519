"""`fleetwright faults`: record, diagnose and simulate faults of training jobs, and quarantine nodes."""

from api.cli.common.lazy_groups import LazyCommand, lazy_group, new_app

COMMANDS = {
    "replay": LazyCommand("api.cli.faults.replay", "Diagnose a recorded job, or check a bundle."),
    "simulate": LazyCommand(
        "api.cli.faults.simulate", "Measure the detectors on a simulated cluster with known faults."
    ),
    "record": LazyCommand("api.cli.faults.record", "Sample one node from outside the job."),
    "monitor": LazyCommand("api.cli.faults.monitor", "Diagnose a live job from its recorders."),
    "paths": LazyCommand("api.cli.faults.paths", "Assign a path to each connection of a job."),
    "simulations": LazyCommand("api.cli.faults.simulations", "List the simulations of a service."),
    "diagnoses": LazyCommand("api.cli.faults.diagnoses", "Report, list and replay the diagnoses of a service."),
    "quarantine": LazyCommand(
        "api.cli.faults.quarantine", "Show the policy and its nodes; approve, release and cordon."
    ),
}

app = new_app(cls=lazy_group(COMMANDS))


@app.callback()
def faults() -> None:
    """Diagnose faults of training jobs, and take bad nodes out of service."""
