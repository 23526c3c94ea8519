"""The fixtures all tests share: real parts, each in a module of `tests/testbed`."""

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
    "tests.testbed.ray_cluster",
    "tests.testbed.ray_serve",
    "tests.testbed.postgres",
    "tests.testbed.prometheus",
]
