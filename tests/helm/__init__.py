"""The chart, rendered; tests/cluster installs it."""
