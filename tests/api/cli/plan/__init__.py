"""Tests of the `plan` commands."""
