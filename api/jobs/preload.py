"""Imports what most jobs need, in the process that all job processes are forked from."""

from api.jobs import kinds
from api.jobs.catalogues import read_builtin

__all__ = ["kinds"]

read_builtin()
