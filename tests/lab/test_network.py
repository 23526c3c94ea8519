"""Tests that namespaces and links exist during a run only, and have the configured rates and cuts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest

from tests.testbed.lab import commands, flood
from tests.testbed.lab.network import Network, remove_stale, running_network
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
STRETCHES, STRETCH_S = 5, 0.25
MAKES_AND_WAITS = """
import time
from tests.testbed.lab.network import running_network
with running_network(nodes=2) as network:
    print(network.owner, flush=True)
    time.sleep(60)
"""


def namespaces_of(owner: str) -> list[str]:
    return [name for name in commands.namespaces() if name.startswith(owner)]


def test_all_namespaces_are_removed_after_an_exception() -> None:
    owner = ""
    with pytest.raises(ZeroDivisionError), running_network(nodes=3) as network:
        owner = network.owner
        assert len(namespaces_of(owner)) == 4
        raise ZeroDivisionError
    assert namespaces_of(owner) == []


def test_namespaces_of_a_killed_process_are_removed_by_the_next_run() -> None:
    process = subprocess.Popen([sys.executable, "-c", MAKES_AND_WAITS], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        living = subprocess.Popen(["ip", "netns", "exec", f"{owner}-n0", "sleep", "60"])
        process.kill()
        process.wait()
    assert len(namespaces_of(owner)) == 3
    remove_stale()
    assert namespaces_of(owner) == []
    assert living.wait(5.0) == -signal.SIGKILL


def test_the_namespaces_of_a_running_process_are_kept() -> None:
    with running_network(nodes=2) as network:
        remove_stale()
        assert len(namespaces_of(network.owner)) == 3


def test_a_link_has_its_configured_rate_and_can_be_slowed_down() -> None:
    with running_network(nodes=3, rate_mbit=80.0) as network:
        assert sent_mbit(network, 0, 1) == pytest.approx(80.0, rel=0.25)
        network.slow_link(source=0, target=1, rate_mbit=20.0)
        assert sent_mbit(network, 0, 1) == pytest.approx(20.0, rel=0.25)
        assert sent_mbit(network, 0, 2) == pytest.approx(80.0, rel=0.25)  # the link only, not the node
        network.slow_tx(1, rate_mbit=20.0)
        assert sent_mbit(network, 1, 2) == pytest.approx(20.0, rel=0.25)
        network.slow_rx(2, rate_mbit=10.0)
        assert sent_mbit(network, 0, 2) == pytest.approx(10.0, rel=0.25)


def test_a_cut_pair_loses_one_direction_and_a_cut_node_both() -> None:
    with running_network(nodes=3) as network:
        assert reaches(network, 0, 1)
        network.cut_pair(source=0, target=1)
        assert not reaches(network, 0, 1)
        assert reaches(network, 0, 2)
        network.cut_node(2)
        assert not reaches(network, 0, 2)


def inside(network: Network, node: int, *argv: str | Path) -> "subprocess.Popen[bytes]":
    where = f"--net={network.path(node)}"
    return subprocess.Popen(["nsenter", where, *argv], stderr=subprocess.DEVNULL)


def sent_mbit(network: Network, source: int, target: int) -> float:
    """Return the rate into the target's link while the source sends as fast as possible.

    It is the median of some intervals, because a busy host pauses either side now and then.
    """
    address = network.address(target)
    taker = inside(network, target, sys.executable, flood.__file__, "take", address, "0")
    sender = inside(network, source, sys.executable, flood.__file__, "send", address, "30")
    try:
        before = received_bytes(network, target)
        wait_for(lambda: received_bytes(network, target) > before + 100_000, what="traffic", timeout_s=10.0)
        return median(taken_mbit(network, target) for _ in range(STRETCHES))
    finally:
        for process in (sender, taker):
            process.kill()
            process.wait()


def taken_mbit(network: Network, node: int) -> float:
    start, start_s = received_bytes(network, node), time.monotonic()
    time.sleep(STRETCH_S)  # any duration: the result is a rate
    return 8e-6 * (received_bytes(network, node) - start) / (time.monotonic() - start_s)


def received_bytes(network: Network, node: int) -> int:
    lines = subprocess.run(
        ["ip", "-n", network.namespace(node), "-s", "link", "show", "e0"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    heading = next(at for at, line in enumerate(lines) if line.strip().startswith("RX:"))
    return int(lines[heading + 1].split()[0])


DIAL = "import socket, sys; socket.create_connection((sys.argv[1], 29900), timeout=0.7)"


def reaches(network: Network, source: int, target: int) -> bool:
    """Check that a connection is possible."""
    address = network.address(target)
    taker = inside(network, target, sys.executable, flood.__file__, "take", address, "0")
    try:
        wait_for(lambda: listens(taker.pid), what="listener", timeout_s=10.0)
        return inside(network, source, sys.executable, "-c", DIAL, address).wait() == 0
    finally:
        taker.kill()
        taker.wait()


def listens(pid: int) -> bool:
    """Check for a listening socket in the namespace of a process."""
    return ":74CC " in Path(f"/proc/{pid}/net/tcp").read_text()


def test_the_owner_is_this_process() -> None:
    with running_network(nodes=2) as network:
        assert network.owner.split("-")[1] == str(os.getpid())
