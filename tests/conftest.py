"""The fixtures all tests share: real parts, each in a module of `tests/testbed`.

Properties are tried on the same few examples each time, so that a failure comes from a change.  `make soak` tries many
new ones.  No example has a deadline: how long one takes depends more on the machine's load than on the code.
"""

import gc
import signal

from hypothesis import settings

from tests.testbed.soak import SOAK

settings.register_profile("short", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("soak", deadline=None, max_examples=200, print_blob=True)
settings.load_profile("soak" if SOAK else "short")

pytest_plugins = [
    "tests.testbed.databases",
    "tests.testbed.service",
    "tests.testbed.server",
    "tests.testbed.requirements",
    "tests.testbed.binaries",
    "tests.testbed.cli",
    "tests.testbed.kubernetes",
    "tests.testbed.kuberay",
    "tests.testbed.kueue",
    "tests.testbed.helm",
    "tests.testbed.browser",
    "tests.testbed.axe",  # after the browser, which it imports
    "tests.testbed.controllers",
    "tests.testbed.ray_cluster",
    "tests.testbed.ray_serve",
    "tests.testbed.postgres",
    "tests.testbed.prometheus",
    "tests.testbed.prometheus_adapter",
]

# Modules and collected tests live for the whole run, so the garbage collector skips them.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from here on, except what exists now."""
    gc.freeze()
    gc.enable()


# What a shell starts in the background inherits SIGINT as ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
