"""`python -m api.cli`, for where the `fleetwright` script is not on the path."""

from api.cli.app import main

main()
