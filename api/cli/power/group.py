"""`fleetwright power`: rows behind a budget, the plans that cap them, and what both are made of."""

from api.cli.common.lazy_groups import Lazy, lazy_group, new_app

COMMANDS = {
    "simulate": Lazy("api.cli.power.simulate", "Run a row of servers behind a budget, and count its brakes."),
    "plan": Lazy("api.cli.power.plan", "Choose clocks and budgets that hold a power tree."),
    "fit": Lazy("api.cli.power.fit", "Fit curves of power and speed to measured tables."),
    "forecast": Lazy("api.cli.power.forecast", "Say with quantiles what a row will draw."),
    "trees": Lazy("api.cli.power.trees", "Check power trees, and keep them on a service."),
    "budgets": Lazy("api.cli.power.budgets", "Read and set the budgets that a service has in force."),
    "simulations": Lazy("api.cli.power.simulations", "Ask a service for simulations, and read those it keeps."),
    "plans": Lazy("api.cli.power.plans", "Ask a service for plans of caps, and read those it keeps."),
}

app = new_app(cls=lazy_group(COMMANDS))


@app.callback()
def power() -> None:
    """Power: rows behind a budget, caps, budgets, forecasts."""
