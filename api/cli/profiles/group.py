"""`fleetwright profiles`: import measurements of serving engines, and fit the performance model to them."""

from importlib.util import find_spec

from api.cli.common.lazy_groups import LazyCommand, lazy_group, new_app

COMMANDS = {
    "import": LazyCommand("api.cli.profiles.imports", "Merge benchmark results into one document.", "import_app"),
    "show": LazyCommand("api.cli.profiles.imports", "Show the coverage of a document of measurements.", "show_app"),
}
if find_spec("api.cli.profiles.fit") is not None:
    COMMANDS["fit"] = LazyCommand("api.cli.profiles.fit", "Fit the performance model's coefficients to measurements.")

app = new_app(cls=lazy_group(COMMANDS))


@app.callback()
def profiles() -> None:
    """Profiles: measurements of serving engines."""
