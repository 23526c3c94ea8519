"""Tests of the method for independent workloads."""
