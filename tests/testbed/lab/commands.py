"""Runs `ip` and `tc` in a namespace, many lines per process."""

import shutil
import subprocess
from collections.abc import Iterable
from typing import Final

from tests.testbed.requirements import UnavailableError

TOOLS: Final = ("ip", "tc", "nsenter")


class CommandError(RuntimeError):
    """Carries the error output of a failed tool."""


def need_tools() -> None:
    """Raise `UnavailableError` where a tool is missing."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise UnavailableError(f"{', '.join(missing)} is not on the path (Debian: apt install iproute2 util-linux)")


def ip(lines: Iterable[str], *, namespace: str | None = None) -> None:
    """Run lines of `ip` in one process."""
    _batch("ip", lines, namespace)


def tc(lines: Iterable[str], *, namespace: str | None = None) -> None:
    """Run lines of `tc` in one process."""
    _batch("tc", lines, namespace)


def namespaces() -> list[str]:
    output = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in output.splitlines() if line.strip()]


def processes_in(namespace: str) -> list[int]:
    output = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in output.split()]


def _batch(tool: str, lines: Iterable[str], namespace: str | None) -> None:
    text = "".join(f"{line}\n" for line in lines)
    where = () if namespace is None else ("-n", namespace)
    done = subprocess.run([tool, *where, "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"{tool} in {namespace}: {done.stderr.strip() or done.stdout.strip()}")
