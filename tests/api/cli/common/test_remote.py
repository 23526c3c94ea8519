"""Commands with --url: an unreachable service or an invalid URL gives one line and an exit code."""

import pytest
import stamina

from tests.testbed.cli import Cli
from tests.testbed.processes import LOOPBACK, free_ports


@pytest.mark.parametrize(
    "command", [("gpus", "list"), ("plans", "list"), ("targets", "list"), ("audit", "check"), ("thaw",)]
)
def test_an_unreachable_service_is_one_line_and_exit_code_1(command: tuple[str, ...], cli: Cli) -> None:
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    with stamina.set_testing(True, attempts=100, cap=True):  # all attempts, without waits
        done = cli(*command, "--url", url)
    assert done.code == 1
    (line,) = done.refused
    assert line.startswith(f"no response from {url}: ")
    assert "refused" in line


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://user:secret-word@host"])
def test_an_invalid_url_is_refused_without_its_password(url: str, cli: Cli) -> None:
    done = cli("plans", "list", "--url", url)
    assert done.code == 2
    (line,) = done.refused
    assert line.startswith("url: must ")
    assert "secret-word" not in line
