"""Tests of the workload package."""
