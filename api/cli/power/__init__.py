"""The `power` command group and `guard`: simulate rows, plan caps, fit and forecast power, guard a row."""
