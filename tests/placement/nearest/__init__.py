"""Tests of planning for the nearest copy."""
