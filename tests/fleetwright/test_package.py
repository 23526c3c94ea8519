"""The package inside a process that has its own `api` and `deploy`, and the SDK's lazy names."""

import subprocess
import sys
from pathlib import Path

import pytest

import api.client
import fleetwright

ROOT = Path(fleetwright.__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "fleetwright").rglob("*.py")
)
FOREIGN = ("api", "deploy", "faults", "fleet", "planner", "placement", "power")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's repository with packages of the same names as ours."""
    for name in FOREIGN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    return tmp_path


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """`-c` puts the working folder first on sys.path."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_module_imports_beside_a_users_own_packages_of_the_same_names(folder: Path) -> None:
    code = f"""
import importlib, sys
for name in {MODULES}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name.split('.')[0] in ('ray', 'torch', 'vllm'), (name, error)
print(*sorted(set(sys.modules) & set({FOREIGN})))
"""
    ended = python(folder, code)
    assert (ended.returncode, ended.stdout.split()) == (0, []), ended.stderr


@pytest.mark.parametrize("name", ["Client", "AsyncClient"])
def test_a_users_own_api_package_that_hides_ours_is_reported_by_path(folder: Path, name: str) -> None:
    ended = python(folder, f"import fleetwright; fleetwright.{name}")
    assert ended.returncode == 1
    assert f"ImportError: fleetwright.{name}: needs Fleetwright's package 'api'" in ended.stderr
    assert f"{folder / 'api'} hides it" in ended.stderr


def test_a_users_own_deploy_package_that_hides_ours_is_reported_for_the_router(folder: Path) -> None:
    ended = python(folder, "import fleetwright; fleetwright.behind_router")
    assert ended.returncode == 1
    assert "ImportError: fleetwright.behind_router: needs Fleetwright's package 'deploy'" in ended.stderr
    assert f"{folder / 'deploy'} hides it" in ended.stderr


def test_a_users_own_deploy_package_does_not_hide_the_clients(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "__init__.py").write_text("")
    ended = python(tmp_path, "import fleetwright; print(fleetwright.Client.__name__)")
    assert ended.stdout.strip() == "Client", ended.stderr


def test_the_router_is_imported_from_the_deploy_package_on_first_use(tmp_path: Path) -> None:
    code = """
import fleetwright
from deploy.router import serve_app
print(fleetwright.behind_router is serve_app.behind_router)
"""
    ended = python(tmp_path, code)
    assert ended.stdout.strip() == "True", ended.stderr


def test_clients_are_imported_from_the_api_package_on_first_use(tmp_path: Path) -> None:
    assert fleetwright.Client is api.client.Client
    assert fleetwright.AsyncClient is api.client.AsyncClient
    ended = python(
        tmp_path, "import sys, fleetwright; print(sorted({'api', 'pydantic', 'numpy', 'ray'} & set(sys.modules)))"
    )
    assert ended.stdout.strip() == "[]", ended.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        _ = fleetwright.Clint
