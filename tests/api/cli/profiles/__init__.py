"""Tests of the `profiles` commands."""
