"""`python -m api.cli`, for use without the `fleetwright` script."""

from api.cli.app import main

main()
