"""Provides the `prometheus` and `promtool` fixtures: a real Prometheus on loopback, and its checker.

The programs are those of PATH, else those of Debian's package, unpacked into the cache.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.testbed import debian
from tests.testbed.binaries import cache_root
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.requirements import skipping_where_unavailable
from tests.testbed.waiting import wait_for

PACKAGE: Final = "prometheus"  # the Debian package, which contains promtool too


class PrometheusError(RuntimeError):
    """Carries the message of Prometheus about a refused query or configuration, or that of promtool about a defect."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Is one element of an instant vector."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """Runs a server; each test replaces its configuration."""

    url: str
    config_path: Path
    pid: int

    def configure(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration; relative paths in it start at `config_path.parent`."""
        self.config_path.write_text(yaml.safe_dump(dict(config)))
        response = httpx.post(f"{self.url}/-/reload", trust_env=False)
        if not response.is_success:
            raise PrometheusError(response.text.strip())

    def query(self, expression: str) -> list[Sample]:
        """Evaluate an instant query now; a scalar is one sample without labels."""
        response = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, trust_env=False).json()
        if response["status"] != "success":
            raise PrometheusError(response["error"])
        result = response["data"]["result"]
        if response["data"]["resultType"] == "scalar":
            return [Sample(labels={}, value=float(result[1]))]
        return [Sample(labels=row["metric"], value=float(row["value"][1])) for row in result]

    def wait_for_samples(self, expression: str) -> list[Sample]:
        """Wait until `expression` has a value."""
        return wait_for(lambda: self.query(expression), what=f"value of {expression}")

    def wait_until_up(self, job: str) -> None:
        """Wait until every target of `job`, and at least one, has been scraped successfully."""
        self.wait_for_samples(f'min by (job) (up{{job="{job}"}}) == 1')


@dataclass(frozen=True, kw_only=True)
class Promtool:
    """Runs promtool; each method returns its output and raises `PrometheusError` for a defect."""

    program: Path

    def check_rules(self, *rule_paths: Path) -> str:
        """Check the syntax of rule files."""
        return self._run("check", "rules", *map(str, rule_paths))

    def test_rules(self, *test_paths: Path) -> str:
        """Run unit tests of rules."""
        return self._run("test", "rules", *map(str, test_paths))

    def check_metrics(self, exposition: str) -> str:
        """Check a page of metrics for mistakes and bad names."""
        return self._run("check", "metrics", stdin=exposition)

    def check_config(self, config_path: Path) -> str:
        """Check a configuration and the rules it loads."""
        return self._run("check", "config", str(config_path))

    def _run(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run([self.program, *arguments], input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PrometheusError((done.stderr + done.stdout).strip())
        return done.stdout


def find_programs(*, cache: Path | None = None) -> Path:
    """Return the directory with `prometheus` and `promtool`; `UnavailableError` where this machine has none."""
    on_path = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(on_path):
        return Path(str(on_path[0])).parent
    cache = cache or cache_root() / PACKAGE
    tree = debian.cached(cache) or debian.fetch(PACKAGE, cache=cache, also=lambda _: False)
    return tree / "usr/bin"


@contextmanager
def running_prometheus(program: Path, *, directory: Path) -> Iterator[Prometheus]:
    """Run a server that scrapes nothing yet and keeps its data in `directory`."""
    config_path = directory / "prometheus.yml"
    config_path.write_text("{}")
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    url = f"http://{address}"
    with prometheus_process(program, directory=directory, address=address) as process:
        process.wait_ready(lambda: answers_ok(f"{url}/-/ready"))
        yield Prometheus(url=url, config_path=config_path, pid=process.pid)


def prometheus_process(program: Path, *, directory: Path, address: str) -> Process:
    """Start a server, or start it again with its configuration and data."""
    argv: list[str | Path] = [program, f"--config.file={directory / 'prometheus.yml'}"]
    argv += [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={address}", "--web.enable-lifecycle"]
    return Process.start(argv, name="prometheus", log_dir=directory)


@pytest.fixture(scope="session")
def prometheus_programs() -> Path:
    with skipping_where_unavailable("prometheus", what="Prometheus"):
        return find_programs()


@pytest.fixture(scope="session")
def prometheus(prometheus_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Share one server among all tests; each sets its configuration."""
    directory = tmp_path_factory.mktemp("prometheus")
    with running_prometheus(prometheus_programs / "prometheus", directory=directory) as server:
        yield server


@pytest.fixture(scope="session")
def promtool(prometheus_programs: Path) -> Promtool:
    return Promtool(program=prometheus_programs / "promtool")
