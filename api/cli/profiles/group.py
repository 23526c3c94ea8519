"""`fleetwright profiles`: what was measured of serving engines, and what is fitted to it."""

from importlib.util import find_spec

from api.cli.common.lazy_groups import LazyCommand, lazy_group, new_app

COMMANDS = {
    "import": LazyCommand("api.cli.profiles.imports", "Make one document of benchmark results.", "import_app"),
    "show": LazyCommand("api.cli.profiles.imports", "Show what a document of measurements covers.", "show_app"),
}
if find_spec("api.cli.profiles.fit") is not None:
    COMMANDS["fit"] = LazyCommand("api.cli.profiles.fit", "Fit the performance model's coefficients to measurements.")

app = new_app(cls=lazy_group(COMMANDS))


@app.callback()
def profiles() -> None:
    """Profiles: what was measured of serving engines."""
