"""Three nodes on one machine, each with its own address; `arrived` waits until sent packets are delivered."""

import os
import socket

from deploy.telemetry.peers import Peers
from tests.testbed.waiting import PATIENCE_S

ADDRESSES = tuple(f"127.5.0.{node + 1}" for node in range(3))
HERE = Peers({address: node for node, address in enumerate(ADDRESSES)})


def free_port() -> int:
    """A port that is free for the first node, and normally for all nodes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_port:
        any_port.bind((ADDRESSES[0], 0))
        free: int = any_port.getsockname()[1]
        return free


def arrived() -> None:
    """Wait until the kernel has delivered all sent packets; they may wait in the queue of any processor."""
    processors = os.sched_getaffinity(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.bind(("127.0.0.1", 0))
        here.settimeout(PATIENCE_S)
        try:
            for processor in processors:
                os.sched_setaffinity(0, {processor})
                here.sendto(b"last", here.getsockname())
                here.recv(16)
        finally:
            os.sched_setaffinity(0, processors)
