"""`fleetwright controller start|stop|upgrade|list` without Ray, without a cluster, and with invalid options."""

import sys
from pathlib import Path

import pytest

from tests.testbed.cli import Cli
from tests.testbed.processes import LOOPBACK, free_ports

COMMANDS = ("start", "stop", "upgrade", "list")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_ray_one_line_names_the_extra_to_install(
    command: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    done = cli("controller", command)
    assert done.code == 2
    assert done.refused == ["joining a Ray cluster needs an extra: pip install 'fleetwright[ray]'"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unreachable_cluster_is_reported(command: str, cli: Cli) -> None:
    pytest.importorskip("ray")
    (port,) = free_ports(1)
    done = cli("controller", command, "--address", f"{LOOPBACK}:{port}")
    assert done.code == 1
    (line,) = done.refused
    assert line.startswith(f"no Ray cluster at {LOOPBACK}:{port}: ")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--token-file", "token"), "token_file: expected an absolute path on the cluster's nodes"),
        (("--url", "api:8400"), "url: expected http://HOST[:PORT] or https://HOST[:PORT], without a user"),
        (("--url", "http://me:secret@api"), "url: expected http://HOST[:PORT] or https://HOST[:PORT], without a user"),
        (("--watch-send", "x"), "watch.send: expected http://HOST[:PORT] or https://HOST[:PORT], without a user"),
        (("--watch-folder", "here"), "watch.folder: expected an absolute path on the cluster's nodes"),
    ],
)
def test_an_invalid_setting_is_refused(options: tuple[str, ...], line: str, cli: Cli) -> None:
    done = cli("controller", "start", *options)
    assert (done.code, done.refused) == (2, [line])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--name", "Not_This"), "expected 1 to 63 of a-z, 0-9 and '-', with no '-' at either end"),
        (("--namespace", "-x"), "expected 1 to 63 of a-z, 0-9 and '-', with no '-' at either end"),
        (("--no-watch", "--watch-hz", "2"), "--no-watch: takes no other --watch option"),
    ],
)
def test_an_invalid_option_is_refused_with_the_allowed_values(options: tuple[str, ...], message: str, cli: Cli) -> None:
    done = cli("controller", "start", *options)
    assert done.code == 2
    assert message in done.stderr


def test_a_token_in_the_runtime_environment_is_refused(cli: Cli, tmp_path: Path) -> None:
    environment = tmp_path / "env.yaml"
    environment.write_text("env_vars: {FLEETWRIGHT_TOKEN: fw_secret}\n")
    done = cli("controller", "start", "--runtime-env", environment)
    assert done.code == 2
    (line,) = done.refused
    assert "FLEETWRIGHT_TOKEN would be shown in Ray's dashboard; use --token-file" in line
    assert "fw_secret" not in done.stderr
