"""The dead man's switch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.guard import Lease, NodeClocks, NotTheGuardError

SAFE = NodeClocks(0.6, 0.5)
TOLD = NodeClocks(0.9, 0.4)
clocks = st.builds(NodeClocks, st.floats(0.05, 1.0), st.floats(0.05, 1.0))


def test_a_node_that_was_never_told_anything_is_safe_even_with_a_guard() -> None:
    assert Lease(SAFE).clocks_at(0.0) == SAFE
    assert Lease(SAFE).heard("a", now_s=0.0, lease_s=10.0).clocks_at(1.0) == SAFE


def test_what_was_told_holds_while_the_guard_is_heard() -> None:
    lease = Lease(SAFE).heard("a", now_s=0.0, lease_s=10.0).with_clocks(TOLD)
    assert lease.clocks_at(9.99) == TOLD
    assert lease.clocks_at(10.0) == NodeClocks(0.6, 0.4)  # the slower of each
    assert lease.heard("a", now_s=20.0, lease_s=10.0).clocks_at(20.0) == TOLD


def test_one_guard_at_a_time() -> None:
    lease = Lease(SAFE).heard("a", now_s=0.0, lease_s=10.0)
    with pytest.raises(NotTheGuardError, match=r"guard 'a' is obeyed here for another 3\.0 s"):
        lease.heard("b", now_s=7.0, lease_s=10.0)
    assert lease.heard("b", now_s=10.0, lease_s=10.0).holder == "b"


@given(told=clocks, safe=clocks, lease_s=st.floats(0.1, 100.0), later_s=st.floats(0.0, 1000.0))
def test_silence_never_speeds_a_node_up(told: NodeClocks, safe: NodeClocks, lease_s: float, later_s: float) -> None:
    lease = Lease(safe).heard("a", now_s=0.0, lease_s=lease_s).with_clocks(told)
    now, later = lease.clocks_at(0.0), lease.clocks_at(later_s)
    assert later.token <= now.token
    assert later.prompt <= now.prompt
    if lease.lapsed(later_s):
        assert later.slower(safe) == later
