"""`fleetwright faults`: from a job's traffic to the node that is at fault, and how it is taken out and comes back."""

from api.cli.common.lazy_groups import Lazy, lazy_group, new_app

COMMANDS = {
    "replay": Lazy("api.cli.faults.replay", "Say what was wrong in a recorded job, as live."),
    "simulate": Lazy("api.cli.faults.simulate", "Grade the detectors on a simulated cluster of known faults."),
    "record": Lazy("api.cli.faults.record", "Look at one node from outside the job, some times a second."),
    "watch": Lazy("api.cli.faults.monitor", "Hear a job's recorders and say what is wrong."),
    "paths": Lazy("api.cli.faults.paths", "Give each connection of a job its path: no cable overfull."),
    "simulations": Lazy("api.cli.faults.simulations", "Ask a service for simulations, and read those it keeps."),
    "verdicts": Lazy("api.cli.faults.diagnoses", "Report verdicts to a service, and read those it keeps."),
    "isolation": Lazy("api.cli.faults.quarantine", "Which nodes are out, by which rules; approve and release."),
}

app = new_app(cls=lazy_group(COMMANDS))


@app.callback()
def faults() -> None:
    """Faults: name the bad node, and take it out safely."""
