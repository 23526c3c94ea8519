"""The Dockerfile installs what is tested, and each process runs with only the packages of its image."""

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from packaging.utils import canonicalize_name

from scripts.chart_package import LOCKS, TARGETS
from scripts.repo_checks import ROOT
from scripts.sbom import pins_of
from tests.helm.chart import one, render
from tests.testbed.helm import Helm
from tests.testbed.processes import LOOPBACK, Process, free_ports

DOCKERFILE = (ROOT / "deploy" / "images" / "Dockerfile").read_text()
PINNED = re.compile(r"^\S+==[^\s;]+", re.MULTILINE)
STAGES = {
    name: stage.partition("\n")[2]
    for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    if (name := stage.partition("\n")[0].rpartition(" AS ")[2])
}
# A process in which the packages of other images cannot be imported.
CONFINED = """
import re, runpy, sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
allowed = set(sys.argv.pop(1).split(","))
owners = packages_distributions()
def name(distribution):
    return re.sub(r"[-_.]+", "-", distribution).lower()
class Absent:
    def find_spec(self, module, path=None, target=None):
        of = {name(each) for each in owners.get(module.partition(".")[0], ())} - {"fleetwright"}
        if of and not of & allowed:
            raise ModuleNotFoundError(f"No module named {module!r}: not in this image", name=module)
sys.meta_path.insert(0, Absent())
"""
RUN = "runpy.run_module('api.cli', run_name='__main__')"
SERVICE_COMMANDS = (
    "serve", "migrate up", "worker", "controller run", "guard", "router", "faults monitor", "faults forward", "doctor",
)  # fmt: skip
EACH_HELP = """
from api.cli.app import app
for command in {commands}:
    app([*command.split(), "--help"], standalone_mode=False)
"""


def test_the_image_copies_only_existing_paths() -> None:
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    paths = [ROOT / name for line in sources for name in line.split()]
    assert paths
    assert [path for path in paths if not path.exists()] == []


def test_the_image_copies_every_package_of_the_project() -> None:
    declared = re.search(r"^packages = \[(.+)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    for package in re.findall(r'"(\w+)"', declared[1]):
        assert re.search(rf"^COPY {package} {package}/?$", DOCKERFILE, re.MULTILINE), package


def test_the_images_run_as_the_user_of_the_chart(helm3: Helm) -> None:
    security = one(render(helm3), "Deployment", "-api")["spec"]["template"]["spec"]["securityContext"]
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in STAGES["runtime"]
    assert "USER" not in "".join(STAGES[target] for target in TARGETS)


def test_every_kernel_is_compiled_at_build_for_the_processor_that_it_is_loaded_for() -> None:
    """A file run by its path imports what is installed; `python -m` would import the folder it runs in."""
    assert STAGES["api-packages"].rstrip().endswith("RUN /opt/fleetwright/bin/python scripts/warm_numba_cache.py")
    assert "COPY --from=api-packages /opt/fleetwright/numba" in STAGES["full-packages"]
    for stage in (STAGES["api-packages"], STAGES["api"], STAGES["full"]):
        for setting in ("NUMBA_CACHE_DIR=/opt/fleetwright/numba", "NUMBA_CPU_NAME=${NUMBA_CPU_NAME}"):
            assert setting in stage
        assert re.search(r"NUMBA_CPU_FEATURES=$", stage, re.MULTILINE)


def test_the_base_is_an_argument_without_a_registry() -> None:
    bases = re.findall(r"^FROM (\S+) AS", DOCKERFILE, re.MULTILINE)
    assert {base for base in bases if base not in STAGES} == {"${PYTHON_IMAGE}"}
    (default,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert not re.match(r"[^/]+[.:][^/]*/", default)


@pytest.mark.parametrize("lock", [*TARGETS, "build"])
def test_an_image_installs_only_tested_versions(lock: str) -> None:
    tested, image = (
        set(PINNED.findall(path.read_text())) for path in (ROOT / "requirements-dev.lock", LOCKS / f"{lock}.lock")
    )
    assert image
    assert image <= tested
    (install,) = (
        run
        for run in re.split(r"^RUN ", DOCKERFILE, flags=re.MULTILINE)[1:]
        if f"--requirement deploy/images/{lock}.lock" in run
    )
    assert "--require-hashes --only-binary :all:" in install


def test_each_image_has_all_of_the_smaller_one_and_no_more_than_it_needs() -> None:
    agent, service, full = (_names(target) for target in TARGETS)
    assert agent < service | {"nvidia-ml-py"} < full
    assert not {"numba", "scipy", "ray", "matplotlib", "kubernetes", "sqlalchemy", "highspy"} & agent
    assert not {"scipy", "ray", "matplotlib"} & service
    assert {"psycopg", "kubernetes", "pyjwt", "numba", "opentelemetry-sdk"} <= service
    assert {"scipy", "ray", "matplotlib"} <= full


@pytest.mark.parametrize("device", ["simulated", "nvml", "redfish"])
def test_the_agent_runs_with_the_packages_of_its_image(device: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "token").write_text("t" * 43)
    (tmp_path / "login").write_text("user:password")
    options = ["--port", str(port), "--token-file", str(tmp_path / "token")]
    if device == "redfish":
        options += ["--redfish-url", f"http://{LOOPBACK}:1", "--redfish-login", str(tmp_path / "login")]
    with _confined("agent", ["agent", "node-1", "--device", device, *options], log_dir=tmp_path) as process:
        if device == "simulated":
            headers = {"Authorization": f"Bearer {'t' * 43}"}
            process.wait_ready(lambda: _page(f"http://{LOOPBACK}:{port}/metrics", headers))
            assert "fleetwright_gpu_power_watts" in _page(f"http://{LOOPBACK}:{port}/metrics", headers)
            process.popen.send_signal(signal.SIGTERM)
        process.popen.wait(60)  # without a driver or a BMC it ends with the reason
    log = process.log_path.read_text()
    assert "not in this image" not in log, log
    assert "Traceback" not in log, log


def test_the_service_loads_every_command_of_its_pods_with_the_packages_of_its_image(tmp_path: Path) -> None:
    with _confined("api", [], log_dir=tmp_path, program=EACH_HELP.format(commands=SERVICE_COMMANDS)) as process:
        assert process.popen.wait(300) == 0, process.log_tail()


def _names(target: str) -> set[str]:
    return {canonicalize_name(pin.name) for pin in pins_of((LOCKS / f"{target}.lock").read_text())}


def _page(url: str, headers: dict[str, str]) -> str:
    try:
        response = httpx.get(url, headers=headers, trust_env=False)
    except httpx.TransportError:
        return ""
    return response.text if response.is_success else ""


@contextmanager
def _confined(target: str, arguments: Sequence[str], *, log_dir: Path, program: str = RUN) -> Iterator[Process]:
    """Run `fleetwright` so that it can import only the packages of an image."""
    argv = [sys.executable, "-c", CONFINED + program, ",".join(sorted(_names(target))), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(log_dir), "PYTHONPATH": str(ROOT)}
    with Process.start(argv, name=target, log_dir=log_dir, env=environment, cwd=log_dir) as process:
        yield process
