"""The `plan`, `sweep` and `plans` commands: find the cheapest GPUs for a load, and read stored plans."""
