"""`fleetwright power`: simulate rows of servers, plan their power caps, and manage trees, budgets and curves."""

from api.cli.common.lazy_groups import LazyCommand, lazy_group, new_app

COMMANDS = {
    "simulate": LazyCommand(
        "api.cli.power.simulate", "Simulate a row of servers behind a budget, and count its brakes."
    ),
    "plan": LazyCommand("api.cli.power.plan", "Choose clocks and budgets for a power tree."),
    "fit": LazyCommand("api.cli.power.fit", "Fit curves of power and speed to measured tables."),
    "forecast": LazyCommand("api.cli.power.forecast", "Forecast the power of a row with quantiles."),
    "trees": LazyCommand("api.cli.power.trees", "Check power trees, and keep them on a service."),
    "budgets": LazyCommand("api.cli.power.budgets", "Read and set the budgets that a service has in force."),
    "simulations": LazyCommand("api.cli.power.simulations", "Run simulations on a service, and read stored ones."),
    "plans": LazyCommand("api.cli.power.plans", "Make cap plans on a service, and read stored ones."),
}

app = new_app(cls=lazy_group(COMMANDS))


@app.callback()
def power() -> None:
    """Power: rows behind a budget, caps, budgets, forecasts."""
