"""The prober's systemd unit in examples/: known options, no capabilities and no dependency on an agent."""

import re

import pytest

from fleetwright.telemetry.batch_sender import REPLY_S
from tests.api.cli.units import Settings, arguments, assert_known, settings_of


@pytest.fixture
def settings() -> Settings:
    return settings_of("fleetwright-prober.service")


def test_every_argument_of_the_unit_is_a_known_option(settings: Settings) -> None:
    argv = [{"${NODE}": "3", "${MONITOR}": "http://w:9404"}.get(each, each) for each in arguments(settings)]
    assert not [each for each in argv if "$" in each]
    assert_known(argv)


def test_the_unit_only_sends_probes_and_uses_a_token_file(settings: Settings) -> None:
    argv = arguments(settings)
    assert {"--probes-only", "--probe", "--send"} <= set(argv)
    (credential,) = settings["LoadCredential"]
    assert argv[argv.index("--token-file") + 1] == f"%d/{credential.partition(':')[0]}"


def test_the_unit_has_no_capabilities_and_only_the_needed_address_families(settings: Settings) -> None:
    assert (settings["DynamicUser"], settings["CapabilityBoundingSet"]) == (["yes"], [""])
    assert set(settings["RestrictAddressFamilies"][0].split()) == {"AF_INET", "AF_INET6", "AF_NETLINK"}


def test_the_unit_restarts_independently_and_has_time_for_the_last_replies(settings: Settings) -> None:
    assert settings["Restart"] == ["always"]
    assert int(settings["TimeoutStopSec"][0]) > 2 * REPLY_S
    ties = {"Requires", "BindsTo", "PartOf", "Requisite"} & set(settings)
    named = [value for values in settings.values() for value in values if re.search(r"fleetwright-\w+\.service", value)]
    assert (ties, named) == (set(), [])
