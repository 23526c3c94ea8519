"""The agent's systemd unit in examples/: known options, a secret, a writable state file and a stop timeout."""

from pathlib import Path

import pytest

from deploy.node_agent.gpu.cap_controller import RESTORE_TRIES, SETTLE_PERIODS
from deploy.node_agent.gpu.node import STALE_PERIODS
from tests.api.cli.units import Settings, arguments, assert_known, settings_of

MAX_POLL_S = 2.0  # poll period of a BMC


@pytest.fixture
def settings() -> Settings:
    return settings_of("fleetwright-agent.service")


def test_every_argument_of_the_unit_is_a_known_option(settings: Settings) -> None:
    assert_known(arguments(settings))


def test_the_unit_requires_a_token_and_has_its_state_file_in_a_writable_folder(settings: Settings) -> None:
    argv = arguments(settings)
    assert "--act" in argv
    (credential,) = settings["LoadCredential"]
    assert argv[argv.index("--token-file") + 1] == f"%d/{credential.partition(':')[0]}"
    folder = Path(argv[argv.index("--state-file") + 1]).parent
    assert folder == Path("%S") / settings["StateDirectory"][0]
    assert settings["ProtectSystem"] == ["strict"]


def test_the_stop_timeout_covers_the_restoration_of_caps(settings: Settings) -> None:
    longest_s = STALE_PERIODS * MAX_POLL_S + 5.0 + RESTORE_TRIES * SETTLE_PERIODS * MAX_POLL_S
    assert int(settings["TimeoutStopSec"][0]) >= longest_s
