"""Runs the command line as `python -m api.cli`, without the `fleetwright` script."""

from api.cli.app import main

main()
