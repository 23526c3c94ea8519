"""The `faults` command group: record, replay, simulate and monitor faults; quarantine nodes."""
