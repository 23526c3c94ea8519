"""Tests of the method for workloads that share nothing."""
