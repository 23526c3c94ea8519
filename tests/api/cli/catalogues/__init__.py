"""Tests of the `catalogues` commands."""
