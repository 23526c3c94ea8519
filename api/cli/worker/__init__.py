"""`fleetwright worker`: does the jobs that services accept."""
