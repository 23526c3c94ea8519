"""Forwards health events of nodes to NVSentinel, Slurm and a webhook, and reads the conditions that they report.

`fleetwright faults forward` calls `process.run_forwarder`.  `decision` derives the health of each component from the
quarantine policy and the active diagnoses of the API.  An `Outlet` sends an event; a `NodeSource` observes nodes.
docs/explanation/faults/health-events.md
"""
