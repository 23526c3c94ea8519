"""Paths of a job's connections."""
