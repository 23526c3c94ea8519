"""The lease of a cap, as the guard's dead man's switch uses it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.node_agent.cap_lease import CapLease, HeldByAnotherError, OnExpiry
from power.controls import NodeClocks

SAFE = NodeClocks(0.6, 0.5)
COMMANDED = NodeClocks(0.9, 0.4)
clocks = st.builds(NodeClocks, st.floats(0.05, 1.0), st.floats(0.05, 1.0))


def held(caps: NodeClocks, *, lease_s: float = 10.0) -> CapLease[NodeClocks]:
    return CapLease(caps=caps).renewed("a", now_s=0.0, lease_s=lease_s)


def test_caps_hold_while_the_holder_renews() -> None:
    lease = held(COMMANDED)
    assert lease.caps_at(9.99, safe=SAFE) == COMMANDED
    assert lease.caps_at(10.0, safe=SAFE) == NodeClocks(0.6, 0.4)  # the slower of each
    assert lease.renewed("a", now_s=20.0, lease_s=10.0).caps_at(20.0, safe=SAFE) == COMMANDED


def test_a_released_cap_ends_with_its_lease() -> None:
    lease = replace(held(COMMANDED), on_expiry=OnExpiry.RELEASE)
    assert lease.caps_at(9.99, safe=SAFE) == COMMANDED
    assert lease.caps_at(10.0, safe=SAFE) is None


def test_a_lease_without_a_holder_is_expired() -> None:
    assert CapLease(caps=COMMANDED).caps_at(0.0, safe=SAFE) == COMMANDED.slower(SAFE)


def test_a_lease_has_one_holder_at_a_time() -> None:
    lease = held(COMMANDED)
    with pytest.raises(HeldByAnotherError, match=r"guard 'a' holds this node for another 3\.0 s"):
        lease.renewed("b", now_s=7.0, lease_s=10.0)
    after = lease.renewed("b", now_s=10.0, lease_s=10.0)
    assert (after.holder, after.caps) == ("b", COMMANDED)


@given(commanded=clocks, safe=clocks, lease_s=st.floats(0.1, 100.0), later_s=st.floats(0.0, 1000.0))
def test_an_expired_lease_never_raises_the_clocks(
    commanded: NodeClocks, safe: NodeClocks, lease_s: float, later_s: float
) -> None:
    lease = held(commanded, lease_s=lease_s)
    now, later = (lease.caps_at(at_s, safe=safe) for at_s in (0.0, later_s))
    assert now is not None
    assert later is not None
    assert later.token <= now.token
    assert later.prompt <= now.prompt
    if lease.expired(later_s):
        assert later.slower(safe) == later
