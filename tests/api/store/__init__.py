"""Tests of the service and what belongs to it."""
