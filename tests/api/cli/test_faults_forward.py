"""`fleetwright faults forward` and `health-events`: wrong options, and the list of events."""

from pathlib import Path

import pytest

from api.client import Client
from api.schemas.health_events import Delivery
from tests.testbed.cli import Cli
from tests.testbed.server import ADMIN_TOKEN

EVENT = {"id": "0" * 32, "at": "2026-11-23T12:00:00Z", "state": "out-of-service", "node": "gpu-3"}
HOOK = ("--webhook", "https://hooks.example.com/fleet")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give --nvsentinel, --slurm, --webhook or --nodes-from"),
        (("--nvsentinel", "unix:///s", "--act"), "--nvsentinel with --act needs --nodes-from kubernetes"),
        (("--slurm", "--evaluate"), "--evaluate needs --nodes-from"),
        (HOOK, "--webhook needs --webhook-secret-file"),
        ((*HOOK, "--webhook-secret-file", "/nowhere"), "No such file or directory"),
        (("--webhook", "ftp://hooks.example.com"), "--webhook must be http://HOST/PATH or https://HOST/PATH"),
        (("--webhook", "https:///fleet"), "--webhook must be http://HOST/PATH"),
        (("--nvsentinel", "tcp://1.2.3.4:1", "--metrics-port", "0"), "must be a Unix socket, unix:///PATH"),
    ],
)
def test_wrong_options_are_refused_in_one_line(cli: Cli, options: tuple[str, ...], message: str) -> None:
    done = cli("faults", "forward", *options)
    assert (done.code, message in done.refused[-1]) == (2, True), done.refused


def test_a_short_secret_is_refused_without_its_text(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2")
    done = cli("faults", "forward", *HOOK, "--webhook-secret-file", str(tmp_path / "key"))
    assert done.code == 2
    assert done.refused == ["--webhook-secret-file: the secret of the webhook has 7 bytes, allowed: 16 and more"]


def test_events_are_listed_with_their_delivery(remote: Cli, service: str) -> None:
    delivery = {"outlet": "slurm", "event": EVENT, "state": "held", "pending": [EVENT], "message": "not touched: root"}
    with Client(service, token=ADMIN_TOKEN) as client:
        client.create_health_event("slurm-0123456789abcdef", Delivery.model_validate(delivery))
    (row,) = remote("faults", "health-events").stdout.splitlines()[1:]
    assert row.split()[:3] == ["slurm", "gpu-3", "out-of-service"]
    assert row.endswith("not touched: root")
