"""Tests of the `targets` commands."""
