"""The fixtures all tests share: real parts, each in a module of `tests/testbed`.

Properties are tried on the same examples each time, so that a failure comes from a change.  FLEETWRIGHT_EXPLORE=1 looks
for new ones.  No example has a deadline: how long one takes says more of the machine's load than of the code.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("exploring", deadline=None)
settings.load_profile("exploring" if os.environ.get("FLEETWRIGHT_EXPLORE") == "1" else "steady")

pytest_plugins = [
    "tests.testbed.databases",
    "tests.testbed.service",
    "tests.testbed.server",
    "tests.testbed.requirements",
    "tests.testbed.binaries",
    "tests.testbed.kubernetes",
    "tests.testbed.kuberay",
    "tests.testbed.kueue",
    "tests.testbed.helm",
    "tests.testbed.controllers",
    "tests.testbed.ray_cluster",
    "tests.testbed.ray_serve",
    "tests.testbed.postgres",
    "tests.testbed.prometheus",
]

# What a shell starts in the background inherits SIGINT as ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
