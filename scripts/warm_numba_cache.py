"""Compile every kernel, so that no process compiles one later.

python -m scripts.warm_numba_cache
"""

from importlib import import_module

from scripts.repo_checks import ROOT, tracked_files

PACKAGES = ("planner", "placement", "power", "faults")
MARK = "\n@jit_entry("


def main() -> None:
    """Importing a module with an entry compiles it, or finds it compiled."""
    for path in sorted(tracked_files()):
        name = path.relative_to(ROOT)
        if name.parts[0] in PACKAGES and path.suffix == ".py" and MARK in path.read_text(encoding="utf-8"):
            import_module(".".join(name.with_suffix("").parts))


if __name__ == "__main__":
    main()
