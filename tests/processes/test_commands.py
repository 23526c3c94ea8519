"""The command line as a process: closed pipes, full disks, terminals, Ctrl-C and secrets."""

import os
import pty
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.api.cli.samples import OFFER, REQUEST
from tests.testbed.cli import COMMAND, Cli, Shell
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports

ESCAPE = "\x1b"
SECRET = f"fw_000000000000_{'s' * 43}"


def start(*args: str, stdout: BinaryIO | int, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *args],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("args", [("gpus", "list"), ("models", "list", "-o", "json"), ("gpus", "pull", "--help")])
def test_a_closed_pipe_prints_no_error(args: tuple[str, ...], bare_environment: Mapping[str, str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed_pipe:  # noqa: PTH123 - a descriptor
        process = start(*args, stdout=closed_pipe, environment=bare_environment)
        _stdout, stderr = process.communicate(timeout=60)
    assert stderr == ""
    assert process.returncode == (1 if "--help" in args else 141)


def test_a_full_disk_is_reported_in_one_line(bare_environment: Mapping[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        process = start("gpus", "list", stdout=full, environment=bare_environment)
        _stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (1, "fleetwright: stdout: No space left on device\n")


def test_ctrl_c_ends_a_command_without_output(bare_environment: Mapping[str, str]) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        silent.settimeout(60)
        url = f"http://{LOOPBACK}:{silent.getsockname()[1]}"
        process = start("plans", "list", "--url", url, stdout=subprocess.PIPE, environment=bare_environment)
        connection, _address = silent.accept()  # the command now waits for a response
        with connection:
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (130, "", "")


def test_piped_output_is_independent_of_terminal_settings(shell: Shell) -> None:
    plain = shell("gpus", "list")
    assert ESCAPE not in plain.stdout + plain.stderr
    for environment in ({"TERM": "xterm-256color"}, {"COLUMNS": "20"}, {"NO_COLOR": "1"}):
        assert shell("gpus", "list", **environment) == plain


def test_piped_help_has_no_escape_sequences(shell: Shell) -> None:
    assert ESCAPE not in shell("plan", "--help", TERM="xterm-256color").stdout


def test_headings_are_bold_on_a_terminal(bare_environment: Mapping[str, str]) -> None:
    shown = on_a_terminal("gpus", "list", environment={**bare_environment, "TERM": "xterm"})
    assert shown.startswith("\x1b[1mgpu ")


@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_headings_are_plain_with_no_color_or_a_dumb_terminal(
    plain: Mapping[str, str], bare_environment: Mapping[str, str]
) -> None:
    shown = on_a_terminal("gpus", "list", environment={**bare_environment, "TERM": "xterm", **plain})
    assert shown.startswith("gpu ")
    assert ESCAPE not in shown


def test_a_narrow_terminal_gets_whole_lines(bare_environment: Mapping[str, str]) -> None:
    environment = {**bare_environment, "TERM": "xterm", "COLUMNS": "40"}
    shown = on_a_terminal("offers", "list", environment=environment)
    row = next(line for line in shown.splitlines() if line.startswith("aws/us-east-1/p5.48xlarge/on-demand"))
    assert row.endswith("2026-11-09")


def test_characters_outside_the_output_encoding_are_escaped(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "offers.yaml").write_text(OFFER.replace("region: eu", "region: Zürich"), encoding="utf-8")
    shown = shell("offers", "list", "-f", "offers.yaml", PYTHONIOENCODING="ascii")
    assert (shown.code, shown.stderr) == (0, "")
    assert "Z\\xfcrich" in shown.stdout
    as_json = shell("offers", "list", "-f", "offers.yaml", "-o", "json", PYTHONIOENCODING="ascii")
    assert as_json.json["offers"][0]["region"] == "Zürich"


@pytest.mark.parametrize(
    "command",
    [("plans", "list"), ("controller", "run", "--once", "--lease-s", "1"), ("plan", "request.yaml")],
)
@pytest.mark.parametrize("token", [SECRET, f"{SECRET} and more", "Zürich"])
def test_a_token_is_never_printed(
    command: tuple[str, ...], token: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "request.yaml").write_text(REQUEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETWRIGHT_URL", f"http://{LOOPBACK}:{free_ports(1)[0]}")
    monkeypatch.setenv("FLEETWRIGHT_TOKEN", token)
    done = cli(*command)
    assert done.code in {1, 2}
    assert token not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_controller_with_a_metrics_port_in_use_is_refused(shell: Shell) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        done = shell("controller", "run", "--metrics-port", str(port))
    assert (done.code, done.refused) == (
        2,
        [f"cannot serve /metrics on {LOOPBACK} port {port}: Address already in use"],
    )


def test_a_controller_serves_health_and_metrics_without_the_api(tmp_path: Path) -> None:
    port, api_port = free_ports(2)
    argv = [*COMMAND, "controller", "run", "--url", f"http://{LOOPBACK}:{api_port}", "--metrics-port", str(port)]
    environment = {"PATH": os.environ["PATH"], "FLEETWRIGHT_TOKEN": SECRET}
    with Process.start(argv, name="controller", log_dir=tmp_path, env=environment) as process:
        process.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{port}/healthz"))
        assert answers_ok(f"http://{LOOPBACK}:{port}/metrics")


def on_a_terminal(*args: str, environment: Mapping[str, str]) -> str:
    """The output of a command on a pseudo-terminal."""
    terminal, inner = pty.openpty()
    process = subprocess.Popen([*COMMAND, *args], env=environment, stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    shown = b""
    try:
        while chunk := os.read(terminal, 65536):
            shown += chunk
    except OSError:  # Linux raises this when the other end is closed
        pass
    os.close(terminal)
    assert process.wait() == 0, shown
    return shown.decode().replace("\r\n", "\n")
