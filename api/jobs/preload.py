"""Imports what most jobs need, in the process that all job processes are forked from.

The images set `FLEETWRIGHT_PRELOAD_KERNELS`: their kernels are compiled, so loading all of them takes a second, and a
worker is ready only then.  Elsewhere they may have to be compiled first, which the first job of a kind does.
"""

import os
from importlib import import_module
from typing import Final

from api.jobs import kinds
from api.jobs.catalogues import read_builtin

__all__ = ["COMPILED", "kinds"]

COMPILED: Final = ("placement.pipeline", "placement.drift.from_request", "power.whatif.run")

read_builtin()
if os.environ.get("FLEETWRIGHT_PRELOAD_KERNELS"):
    from fleet.numba_cache import modules_with_kernels  # loads numba

    for name in (*modules_with_kernels(), *COMPILED):
        import_module(name)
