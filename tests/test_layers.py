"""Contracts between packages: a forbidden import makes `make check` fail."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("fleet", "planner", "placement", "power", "faults", "deploy", "api", "fleetwright")
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

PURE = "The decision packages are pure"
LAYERS = "A package imports only packages below it"
CIRCLES = "do not import each other in circles"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages and their contracts, to break things in."""
    copy = tmp_path_factory.mktemp("packages")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def lint(packages: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"],
        cwd=packages,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(packages)},
    )


def test_the_packages_keep_their_contracts(packages: Path) -> None:
    outcome = lint(packages)
    assert outcome.returncode == 0, outcome.stdout


FORBIDDEN = [
    *((package, f"import {library}", PURE) for package in ("fleet", "planner", "placement", "power", "faults")
      for library in ("ray", "kubernetes", "sqlalchemy", "httpx")),
    ("planner", "import socket", PURE),
    ("power", "import asyncio", PURE),
    ("fleet", "import planner", LAYERS),
    ("placement", "from planner import plan", LAYERS),
    ("power", "import faults", LAYERS),
    ("faults", "import deploy", LAYERS),
    ("planner", "import api.schemas", LAYERS),
    ("api/schemas", "import api.client", LAYERS),
    ("deploy", "import api.cli", LAYERS),
    ("deploy", "import api.store", "deploy uses the API by HTTP only"),
    ("api/server", "import api.client", "The service does not call itself"),
    ("api/server", "import sqlalchemy", "Only the store knows the database"),
    ("api/server", "from api.store.tables import ResultRow", "The store is entered by its public face"),
]  # fmt: skip


@pytest.fixture(scope="module")
def report(packages: Path) -> dict[str, str]:
    """The report on all forbidden imports at once, each in a module of its own: contract -> its violations."""
    planted = [packages / module / f"planted_{index}.py" for index, (module, _, _) in enumerate(FORBIDDEN)]
    for path, (_, line, _) in zip(planted, FORBIDDEN, strict=True):
        path.write_text(f"{line}\n")
    try:
        outcome = lint(packages)
    finally:
        for path in planted:
            path.unlink()
    assert outcome.returncode != 0
    _, _, details = outcome.stdout.partition("Broken contracts")
    sections = re.split(r"\n([^\n]+)\n-{3,}\n", details)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@pytest.mark.parametrize("index", range(len(FORBIDDEN)), ids=[f"{module}: {line}" for module, line, _ in FORBIDDEN])
def test_a_forbidden_import_is_found(report: dict[str, str], index: int) -> None:
    _, line, contract = FORBIDDEN[index]
    (violations,) = (text for name, text in report.items() if contract in name)
    assert re.search(rf"planted_{index}\b", violations), line


@pytest.mark.parametrize(
    ("module", "line"),
    [("deploy/common", "import deploy.controller"), ("faults/hangs", "import faults.monitor")],
)
def test_a_cycle_of_two_packages_is_found(packages: Path, module: str, line: str) -> None:
    planted = packages / module / "planted.py"
    planted.write_text(f"{line}\n")
    try:
        outcome = lint(packages)
    finally:
        planted.unlink()
    assert [row for row in outcome.stdout.splitlines() if " BROKEN" in row and CIRCLES in row], outcome.stdout


def test_a_circle_of_two_modules_of_one_folder_is_found(packages: Path) -> None:
    first, second = (packages / "deploy" / "common" / f"planted_{name}.py" for name in ("first", "second"))
    first.write_text("import deploy.common.planted_second\n")
    second.write_text("import deploy.common.planted_first\n")
    try:
        outcome = lint(packages)
    finally:
        first.unlink()
        second.unlink()
    assert [row for row in outcome.stdout.splitlines() if " BROKEN" in row and CIRCLES in row], outcome.stdout


def test_make_check_asks_the_linter() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "check"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert ".venv/bin/lint-imports" in said


def test_no_own_module_is_imported_by_a_string() -> None:
    """import-linter does not find such an import.  A worker preloads the modules with kernels, which jobs import."""
    by_string = re.compile(rf"(?:import_module|__import__)\(\s*(?:f?[\"'](?:{'|'.join(PACKAGES)})\b|(?!\s*[\"']))")
    assert by_string.search('import_module("api.cli")')
    assert by_string.search("import_module(name)")
    assert not by_string.search('import_module("ray")')
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if by_string.search(path.read_text())
    }
    assert found == {"api/jobs/preload.py"}
