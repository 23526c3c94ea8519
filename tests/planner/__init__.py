"""Tests of the planner; folders mirror its packages."""
