"""`fleetwright jobs`: follow and cancel the work that a service does."""
