"""Compile every kernel, so that no process compiles one later.

python -m scripts.warm_numba_cache

The image runs this file by its path, so that the installed packages are compiled, not those of the working folder.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("fleet", "planner", "placement", "power", "faults")
MARK = "\n@jit_entry("


def main() -> None:
    """Importing a module with an entry compiles it, or finds it compiled."""
    for module in modules_with_kernels():
        import_module(module)


def modules_with_kernels() -> Iterator[str]:
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"the package {package} is not installed", name=package)
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*.py")):
            if MARK in path.read_text(encoding="utf-8"):
                yield ".".join(path.relative_to(folder.parent).with_suffix("").parts)


if __name__ == "__main__":
    main()
