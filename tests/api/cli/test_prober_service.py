"""The prober's unit in examples/: options that the program has, no right, and nothing that ties it to an agent."""

import re

import pytest

from fleetwright.telemetry.batch_sender import REPLY_S
from tests.api.cli.units import Settings, arguments, assert_known, settings_of


@pytest.fixture
def settings() -> Settings:
    return settings_of("fleetwright-prober.service")


def test_the_command_line_knows_every_argument(settings: Settings) -> None:
    said = [{"${NODE}": "3", "${WATCHER}": "http://w:9404"}.get(each, each) for each in arguments(settings)]
    assert not [each for each in said if "$" in each]
    assert_known(said)


def test_it_sends_probes_and_nothing_else_and_shows_the_secret(settings: Settings) -> None:
    said = arguments(settings)
    assert {"--probes-only", "--probe", "--send"} <= set(said)
    (credential,) = settings["LoadCredential"]
    assert said[said.index("--token-file") + 1] == f"%d/{credential.partition(':')[0]}"


def test_it_has_no_right_and_the_sockets_that_it_opens(settings: Settings) -> None:
    assert (settings["DynamicUser"], settings["CapabilityBoundingSet"]) == (["yes"], [""])
    assert set(settings["RestrictAddressFamilies"][0].split()) == {"AF_INET", "AF_INET6", "AF_NETLINK"}


def test_it_comes_back_alone_and_has_time_to_tell_its_last(settings: Settings) -> None:
    assert settings["Restart"] == ["always"]
    assert int(settings["TimeoutStopSec"][0]) > 2 * REPLY_S
    ties = {"Requires", "BindsTo", "PartOf", "Requisite"} & set(settings)
    named = [value for values in settings.values() for value in values if re.search(r"fleetwright-\w+\.service", value)]
    assert (ties, named) == (set(), [])
