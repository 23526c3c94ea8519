"""The addresses of nodes."""

import pytest

from deploy.telemetry.peers import Peers, parse_peers
from fleet.documents import RuleError


def test_pairs_are_read_from_one_line_or_one_per_line() -> None:
    assert parse_peers("10.0.0.1=0, 10.0.0.2=1") == parse_peers("# rails\n10.0.0.1=0\n\n10.0.0.2=1  # rail 2\n")


def test_a_node_may_have_several_addresses() -> None:
    peers = parse_peers("10.0.0.1=0,10.1.0.1=0,fd00::1=1")
    assert peers.nodes == 2
    assert set(peers.keys.values()) == {0, 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no peer"),
        ("10.0.0.1", "expected ADDRESS=INDEX"),
        ("10.0.0.1=x", "expected ADDRESS=INDEX"),
        ("10.0.0.1=1,10.0.0.1=2", "is there twice"),
        ("node-1=1", "expected an IPv4 or IPv6 address"),
        ("10.0.0.1=999999", "expected the index of a node"),
    ],
)
def test_an_invalid_pair_is_reported(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        parse_peers(text)


def test_an_index_below_0_is_refused() -> None:
    with pytest.raises(RuleError, match="0 to"):
        Peers({"10.0.0.1": -1})
