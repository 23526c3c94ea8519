"""numba compilation with a cache on disk.

`@jit_inner` compiles a function that only compiled code calls, `@jit_entry(...)` one that Python calls.

A module with an entry compiles at import, or loads the result of an earlier process.  Import such a module late where
a command may not need it.  numba checks only the entry's own file for changes.  The cache key here instead has the
contents of the files of all functions that the entry reaches, and the constants they use: layers of an image round the
times of files.  Where no folder is writable, as in the image, a cache that exists is still read.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
from numba import njit
from numba.core import caching
from numba.extending import is_jitted

# numba publishes few types.
_config: Any = numba.config
_CompileResultCache: Any = caching.CompileResultCacheImpl
_FunctionCache: Any = caching.FunctionCache
Function = TypeVar("Function", bound=Callable[..., Any])


def jit_inner(function: Function) -> Function:
    """Compile a function that only compiled code calls; without a Python entry this takes half as long."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    return cast("Function", njit(**options)(function))


def jit_entry(signature: Any) -> Callable[[Function], Function]:
    """Compile for these types at once, or load from disk."""

    def compiled(function: Function) -> Function:
        dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
        if not bool(is_jitted(dispatcher)):  # NUMBA_DISABLE_JIT, for debugging
            return function
        try:
            dispatcher.enable_caching()
        except (RuntimeError, OSError):  # "no locator available": neither NUMBA_CACHE_DIR, nor this folder, nor a home
            dispatcher._cache = _ReadOnlyCache(function)  # noqa: SLF001 - numba 0.61 to 0.68 offer no other way
        _stamp(dispatcher)
        try:
            dispatcher.compile(signature)
        except (AttributeError, ImportError):  # an index of an earlier version, whose argument types no longer exist
            dispatcher._cache.flush()  # noqa: SLF001 - numba 0.61 to 0.68 offer no other way
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return cast("Function", dispatcher)

    return compiled


class _ReadOnlyLocator:
    """Finds the cache of a function where numba itself would write it, without the demand that it can."""

    def __init__(self, function: Any, file: str) -> None:
        self._line: Final = function.__code__.co_firstlineno
        self._folder = Path(file).parent / "__pycache__"
        if _config.CACHE_DIR:
            subfolder = _CompileResultCache._locator_classes[0].get_suitable_cache_subpath(file)  # noqa: SLF001
            self._folder = Path(_config.CACHE_DIR) / subfolder

    @classmethod
    def from_function(cls, function: Any, file: str) -> "_ReadOnlyLocator":
        return cls(function, file)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return ""  # `_stamp` replaces it

    def get_disambiguator(self) -> str:
        return str(self._line)


class _ReadOnlyCacheImpl(_CompileResultCache):  # type: ignore[misc]
    _locator_classes = (_ReadOnlyLocator,)


class _ReadOnlyCache(_FunctionCache):  # type: ignore[misc]
    _impl_class = _ReadOnlyCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for these types, or None."""
        try:
            return super().load_overload(sig, target_context)
        except OSError:  # the folder may not be read
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save nothing."""

    def flush(self) -> None:
        """Stop reading a cache that cannot be replaced."""
        self.disable()


def _stamp(dispatcher: Any) -> None:
    made_of = "\n".join(sorted(set(_made_of(dispatcher.py_func))))
    kept = dispatcher._cache._cache_file  # noqa: SLF001 - numba 0.61 to 0.68 offer no other way
    kept._source_stamp = hashlib.sha256(made_of.encode()).hexdigest()  # noqa: SLF001


def _made_of(function: Any) -> Iterator[str]:
    """Every file whose code the function reaches, with its content, and every constant that it uses."""
    waiting, visited = [function], {function}
    while waiting:
        here = waiting.pop()
        file = here.__code__.co_filename
        yield f"{file} {_content_of(file)}"
        for name in here.__code__.co_names:
            value = here.__globals__.get(name)
            if is_jitted(value) and value.py_func not in visited:
                visited.add(value.py_func)
                waiting.append(value.py_func)
            elif isinstance(value, int | float | str | tuple):
                yield f"{here.__module__}.{name} = {value!r}"


@lru_cache
def _content_of(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
