"""Tests of the `serve` commands."""
