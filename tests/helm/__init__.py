"""Tests the rendered chart; tests/cluster installs it."""
