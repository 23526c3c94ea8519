"""Rules of this house that no linter knows: what must not be in the repository, and what must agree with what.

python -m scripts.house_rules
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 400
FILE_BYTES_MAX = 1_500_000

# Package indexes and proxies are each user's own choice; none of their hosts belongs in here.  (In two parts, so that
# this file keeps its own rule.)
REGISTRIES = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("registry.npmjs", "org"),
    ("proxy.golang", "org"),
    ("sum.golang", "org"),
    ("deb.debian", "org"),
    ("crates", "io"),
)
REGISTRY_HOST = re.compile("|".join(rf"\b{re.escape(name)}\.{suffix}\b" for name, suffix in REGISTRIES), re.IGNORECASE)
HOME_PATH = re.compile(r"(?<![\w/.])/(?:root|home/[a-z]\w*)/")
IGNORED = {"go.sum"}  # content hashes


def main() -> int:
    """Print every breach; 1 when there is any."""
    breaches = [breach for path in tracked_files() for breach in breaches_in(path)]
    for breach in breaches:
        print(breach)
    print(f"{len(breaches)} breaches of the house rules" if breaches else "house rules kept")
    return 1 if breaches else 0


def tracked_files() -> list[Path]:
    """Files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def breaches_in(path: Path) -> Iterator[str]:
    """What is wrong with one file."""
    name = path.relative_to(ROOT)
    size = path.stat().st_size
    if size > FILE_BYTES_MAX:
        yield f"{name}: {size} bytes; allowed: {FILE_BYTES_MAX}"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    lines = text.splitlines()
    if path.suffix == ".py" and len(lines) > MODULE_LINES_MAX:
        yield f"{name}: {len(lines)} lines; is a noun missing? allowed: {MODULE_LINES_MAX}"
    if path.name in IGNORED:
        return
    for number, line in enumerate(lines, start=1):
        if REGISTRY_HOST.search(line):
            yield f"{name}:{number}: names a package registry's host"
        if HOME_PATH.search(line):
            yield f"{name}:{number}: holds a path of one machine"


if __name__ == "__main__":
    sys.exit(main())
