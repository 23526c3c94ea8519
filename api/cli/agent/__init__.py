"""The `agent` command: apply power caps and workload clocks to the GPUs of one node."""
