"""Compiled functions, by numba: `@part` for what compiled code calls, `@entry(...)` for what Python calls.

A module with an entry compiles when it is imported, or loads what an earlier process compiled; import it late where a
command may not need it.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def part(function: Function) -> Function:
    """Compile what only compiled code calls: without an entry from Python it takes half as long."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    return cast("Function", njit(**options)(function))


def entry(signature: Any) -> Callable[[Function], Function]:
    """Compile for these types at once, or load what is on disk; where nothing can be kept, compile each time."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

    def compiled(function: Function) -> Function:
        try:
            return cast("Function", njit(signature, cache=True, **options)(function))
        except (RuntimeError, OSError):  # "no locator available": neither NUMBA_CACHE_DIR, nor this folder, nor a home
            return cast("Function", njit(signature, **options)(function))

    return compiled
