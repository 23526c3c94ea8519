"""Checks of the repository that no linter has: sizes of files and modules, and paths of one machine.

python -m scripts.repo_checks
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 400
FILE_BYTES_MAX = 1_500_000
HOME_PATH = re.compile(r"(?<![\w/.])/(?:root|home/[a-z]\w*)/")
IGNORED = {"go.sum"}  # content hashes


def main() -> int:
    violations = [violation for path in tracked_files() for violation in violations_in(path)]
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violations" if violations else "repository checks passed")
    return 1 if violations else 0


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def violations_in(path: Path, *, root: Path = ROOT) -> Iterator[str]:
    name = path.relative_to(root)
    size = path.stat().st_size
    if size > FILE_BYTES_MAX:
        yield f"{name}: {size} bytes; allowed: {FILE_BYTES_MAX}"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    lines = text.splitlines()
    if path.suffix == ".py" and len(lines) > MODULE_LINES_MAX:
        yield f"{name}: {len(lines)} lines; allowed: {MODULE_LINES_MAX}. Split the module"
    if path.name in IGNORED:
        return
    for number, line in enumerate(lines, start=1):
        if HOME_PATH.search(line):
            yield f"{name}:{number}: contains a path of one machine"


if __name__ == "__main__":
    sys.exit(main())
