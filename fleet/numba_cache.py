"""numba compilation with a cache on disk.

`@jit_inner` compiles a function that only compiled code calls, `@jit_entry(...)` one that Python calls.

A module with an entry compiles at import, or loads the result of an earlier process.  Import such a module late where
a command may not need it.  numba checks only the entry's own file for changes.  This module therefore adds the files
of all inner functions that the entry reaches, and the constants they use, to the cache key.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.extending import is_jitted

Function = TypeVar("Function", bound=Callable[..., Any])


def jit_inner(function: Function) -> Function:
    """Compile a function that only compiled code calls; without a Python entry this takes half as long."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    return cast("Function", njit(**options)(function))


def jit_entry(signature: Any) -> Callable[[Function], Function]:
    """Compile for these types at once, or load from disk; where no cache folder is writable, compile each time."""

    def compiled(function: Function) -> Function:
        dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
        if not is_jitted(dispatcher):  # NUMBA_DISABLE_JIT, for debugging
            return function
        try:
            dispatcher.enable_caching()
            _stamp(dispatcher)
        except (RuntimeError, OSError):  # "no locator available": neither NUMBA_CACHE_DIR, nor this folder, nor a home
            dispatcher = njit(nogil=True, error_model="numpy")(function)
        try:
            dispatcher.compile(signature)
        except (AttributeError, ImportError):  # an index of an earlier version, whose argument types no longer exist
            dispatcher._cache.flush()  # noqa: SLF001 - numba 0.61 to 0.68 offer no other way
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return cast("Function", dispatcher)

    return compiled


def _stamp(dispatcher: Any) -> None:
    kept = dispatcher._cache._cache_file  # noqa: SLF001 - numba 0.61 to 0.68 offer no other way
    made_of = "\n".join(sorted(set(_made_of(dispatcher.py_func))))
    kept._source_stamp = (*kept._source_stamp, hashlib.sha256(made_of.encode()).hexdigest())  # noqa: SLF001


def _made_of(function: Any) -> Iterator[str]:
    """Every file whose code the function reaches, with size and time, and every constant that it uses."""
    waiting, visited = [function], {function}
    while waiting:
        here = waiting.pop()
        about = Path(here.__code__.co_filename).stat()
        yield f"{here.__code__.co_filename} {about.st_size} {about.st_mtime_ns}"
        for name in here.__code__.co_names:
            value = here.__globals__.get(name)
            if is_jitted(value) and value.py_func not in visited:
                visited.add(value.py_func)
                waiting.append(value.py_func)
            elif isinstance(value, int | float | str | tuple):
                yield f"{here.__module__}.{name} = {value!r}"
