"""Generates cross traffic: one process sends for some seconds as fast as TCP allows, another receives.

flood.py take|send ADDRESS SECONDS
"""

import socket
import sys
import time
from contextlib import suppress

PORT = 29900
BLOCK = bytes(1 << 16)
PATIENCE_S = 5.0


def take(address: str) -> None:
    """Accept one connection and read it to its end."""
    with socket.create_server((address, PORT)) as listener:
        connection, _ = listener.accept()
        with connection, suppress(ConnectionError):
            while connection.recv(len(BLOCK)):
                pass


def send(address: str, seconds: float) -> None:
    with _dial(address) as connection, suppress(ConnectionError):
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            connection.sendall(BLOCK)


def _dial(address: str) -> socket.socket:
    gives_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=1.0)
        except OSError:
            if time.monotonic() > gives_up_s:
                raise
            time.sleep(0.02)


if __name__ == "__main__":
    role, where, how_long = sys.argv[1:]
    if role == "take":
        take(where)
    else:
        send(where, float(how_long))
