"""Compile every kernel, so that no process compiles one later.

python -m scripts.warm_numba_cache

The image runs this file by its path, so that the installed packages are compiled, not those of the working folder.
"""

from importlib import import_module

from fleet.numba_cache import modules_with_kernels


def main() -> None:
    """Importing a module with an entry compiles it, or finds it compiled."""
    for module in modules_with_kernels():
        import_module(module)


if __name__ == "__main__":
    main()
