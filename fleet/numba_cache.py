"""numba compilation with a cache on disk.

`@jit_inner` compiles a function that only compiled code calls, `@jit_entry(...)` one that Python calls.

A module with an entry compiles at import, or loads the result of an earlier process.  Import such a module late where
a command may not need it.  numba checks only the entry's own file for changes.  The cache key here instead has the
contents of the files of all functions that the entry reaches, and the constants they use: layers of an image round the
times of files.  Where no folder is writable, as in the image, a cache that exists is still read.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from numba import config as numba_config
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.extending import is_jitted

Function = TypeVar("Function", bound=Callable[..., Any])
PACKAGES: Final = ("fleet", "planner", "placement", "power", "faults")
MARK: Final = "\n@jit_entry("
config: Any = numba_config  # its attributes come from the environment


def jit_inner(function: Function) -> Function:
    """Compile a function that only compiled code calls; without a Python entry this takes half as long."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    return cast("Function", njit(**options)(function))


def jit_entry(signature: Any) -> Callable[[Function], Function]:
    """Compile for these types at once, or load from disk."""

    def compiled(function: Function) -> Function:
        if config.DISABLE_JIT:  # for debugging
            return function
        dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
        dispatcher._cache = _cache_of(dispatcher)  # noqa: SLF001 - numba 0.61 to 0.68 offer no other way
        try:
            dispatcher.compile(signature)
        except (AttributeError, ImportError):  # an index of an earlier version, whose argument types no longer exist
            dispatcher._cache.flush()  # noqa: SLF001 - numba 0.61 to 0.68 offer no other way
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return cast("Function", dispatcher)

    return compiled


def modules_with_kernels() -> Iterator[str]:
    """Yield the name of every installed module that compiles at import."""
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"the package {package} is not installed", name=package)
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*.py")):
            if MARK in path.read_text(encoding="utf-8"):
                yield ".".join(path.relative_to(folder.parent).with_suffix("").parts)


class _ReadOnlyLocator:
    """Finds the cache of a function where numba itself would write it, without the demand that it can."""

    def __init__(self, function: Any, file: str) -> None:
        self._line: Final = function.__code__.co_firstlineno
        self._folder = Path(file).parent / "__pycache__"
        if config.CACHE_DIR:
            first: Any = CompileResultCacheImpl._locator_classes[0]  # noqa: SLF001
            self._folder = Path(config.CACHE_DIR) / first.get_suitable_cache_subpath(file)

    @classmethod
    def from_function(cls, function: Any, file: str) -> "_ReadOnlyLocator":
        return cls(function, file)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return ""  # `_stamp` replaces it

    def get_disambiguator(self) -> str:
        return str(self._line)


class _ReadOnlyCacheImpl(CompileResultCacheImpl):
    _locator_classes = [_ReadOnlyLocator]  # noqa: RUF012 - as in the base class


class _ReadOnlyCache(FunctionCache):
    """Reads the cache of an image before the one that this process may write, if any."""

    _impl_class = _ReadOnlyCacheImpl

    def __init__(self, function: Any, writable: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._writable = writable

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for these types, or None."""
        found = None
        with suppress(OSError, AttributeError, ImportError):  # unreadable, or of an earlier version
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return found if found is not None else self._writable.load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save where this process may write."""
        self._writable.save_overload(sig, data)

    def flush(self) -> None:
        """Empty what this process may write."""
        self._writable.flush()


def _cache_of(dispatcher: Any) -> Any:
    """Return the cache of an entry: where numba writes it by default, even if that folder is read-only."""
    nothing_kept = dispatcher._cache  # noqa: SLF001
    try:
        stamp = _stamp_of(dispatcher.py_func)
    except OSError:  # code without a file
        return nothing_kept
    with suppress(RuntimeError, OSError):  # neither NUMBA_CACHE_DIR, nor the module's folder, nor a home is writable
        dispatcher.enable_caching()
    writable = dispatcher._cache  # noqa: SLF001
    read = _ReadOnlyCache(dispatcher.py_func, writable)
    for cache in {read, writable} - {nothing_kept}:
        cache._cache_file._source_stamp = stamp  # noqa: SLF001
    return writable if writable.cache_path == read.cache_path else read


def _stamp_of(function: Any) -> str:
    return hashlib.sha256("\n".join(sorted(set(_made_of(function)))).encode()).hexdigest()


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
