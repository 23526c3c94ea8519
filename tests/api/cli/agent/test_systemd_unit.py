"""The agent's unit in examples/: options that the program has, a secret, a state file it may write, time to end."""

from pathlib import Path

import pytest

from deploy.node_agent.gpu.cap_controller import RESTORE_TRIES, SETTLE_PERIODS
from deploy.node_agent.gpu.node import STALE_PERIODS
from tests.api.cli.units import Settings, arguments, assert_known, settings_of

SLOWEST_S = 2.0  # poll period of a BMC


@pytest.fixture
def settings() -> Settings:
    return settings_of("fleetwright-agent.service")


def test_the_command_line_knows_every_argument(settings: Settings) -> None:
    assert_known(arguments(settings))


def test_it_acts_only_for_who_has_the_secret_and_remembers_where_it_may_write(settings: Settings) -> None:
    said = arguments(settings)
    assert "--act" in said
    (credential,) = settings["LoadCredential"]
    assert said[said.index("--token-file") + 1] == f"%d/{credential.partition(':')[0]}"
    folder = Path(said[said.index("--state-file") + 1]).parent
    assert folder == Path("%S") / settings["StateDirectory"][0]
    assert settings["ProtectSystem"] == ["strict"]


def test_it_has_time_to_put_caps_back(settings: Settings) -> None:
    longest_s = STALE_PERIODS * SLOWEST_S + 5.0 + RESTORE_TRIES * SETTLE_PERIODS * SLOWEST_S
    assert int(settings["TimeoutStopSec"][0]) >= longest_s
