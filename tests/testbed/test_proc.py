"""Tests descendants, environment variables and listening addresses on real processes."""

import ipaddress
import os
import secrets
import socket
import subprocess
import sys

import pytest

from tests.testbed.proc import descendants, is_running, listening_on, running_with_variable

# Starts a child, prints its pid, and stays.
PARENT = 'import subprocess; child = subprocess.Popen(["sleep", "1000"]); print(child.pid, flush=True); child.wait()'


def test_children_of_children_are_descendants_until_they_are_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        assert descendants(parent.pid) == [child_pid]
        found = descendants(os.getpid())
        assert found.index(parent.pid) < found.index(child_pid)
        parent.kill()
        os.kill(child_pid, 9)
        assert parent.pid in descendants(os.getpid())
    assert parent.pid not in descendants(os.getpid())


def test_a_process_that_ended_is_not_running_even_before_it_is_reaped() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        assert is_running(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_running(process.pid)
    assert not is_running(process.pid)


def test_a_variable_of_the_environment_is_inherited() -> None:
    value = secrets.token_hex()
    environment = {**os.environ, "FLEETWRIGHT_TEST_MARK": value}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        assert sorted(running_with_variable("FLEETWRIGHT_TEST_MARK", value)) == sorted([parent.pid, child_pid])
        os.kill(child_pid, 9)
    assert running_with_variable("FLEETWRIGHT_TEST_MARK", value) == []


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"])
def test_listening_addresses_are_found(address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.bind((address, 0))
        assert listening_on([os.getpid()]) == set()
        listener.listen()
        assert listening_on([os.getpid()]) == {ipaddress.ip_address(address.removeprefix("::ffff:"))}
