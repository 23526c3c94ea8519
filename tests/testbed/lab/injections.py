"""Injects faults into a running job from outside: into its links and its processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.testbed import launch
from tests.testbed.lab import flood
from tests.testbed.lab.network import Network

Kind = Literal["link", "tx", "rx", "pair_cut", "node_cut", "stop", "kill", "flood", "heal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """Describes one fault and its time."""

    kind: Kind
    at_s: float  # after the start
    node: int
    peer: int | None = None
    rate_mbit: float | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Bench:
    """Holds the network and the processes that injections change."""

    network: Network
    pids: Sequence[int]  # of the ranks
    beside: list[subprocess.Popen[bytes]] = field(default_factory=list)  # started here, ended with the run

    def inject(self, injection: Injection) -> None:
        _DO[injection.kind](self, injection)

    def close(self) -> None:
        """End all started processes."""
        for process in self.beside:
            process.kill()
            process.wait()


def _link(bench: Bench, what: Injection) -> None:
    bench.network.slow_link(source=what.node, target=_peer(what), rate_mbit=_rate(what))


def _tx(bench: Bench, what: Injection) -> None:
    bench.network.slow_tx(what.node, rate_mbit=_rate(what))


def _rx(bench: Bench, what: Injection) -> None:
    bench.network.slow_rx(what.node, rate_mbit=_rate(what))


def _heal(bench: Bench, what: Injection) -> None:
    """Restore the rate of a slow NIC."""
    bench.network.slow_tx(what.node, rate_mbit=bench.network.rate_mbit)
    bench.network.slow_rx(what.node, rate_mbit=bench.network.rate_mbit)


def _pair_cut(bench: Bench, what: Injection) -> None:
    bench.network.cut_pair(source=what.node, target=_peer(what))


def _node_cut(bench: Bench, what: Injection) -> None:
    bench.network.cut_node(what.node)


def _stop(bench: Bench, what: Injection) -> None:
    os.kill(bench.pids[what.node], signal.SIGSTOP)


def _kill(bench: Bench, what: Injection) -> None:
    os.kill(bench.pids[what.node], signal.SIGKILL)


def _flood(bench: Bench, what: Injection) -> None:
    """Send TCP cross traffic at the full rate of the link."""
    network, target = bench.network, _peer(what)
    address = network.address(target)
    for node, role in ((target, "take"), (what.node, "send")):
        bench.beside.append(_inside(network, node, [flood.__file__, role, address, str(what.seconds or 3.0)]))


def _inside(network: Network, node: int, argv: list[str]) -> subprocess.Popen[bytes]:
    launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
    return subprocess.Popen(["nsenter", f"--net={network.path(node)}", *launcher, sys.executable, "-I", "-S", *argv])


def _peer(what: Injection) -> int:
    if what.peer is None:
        raise ValueError(f"{what.kind} needs a peer")
    return what.peer


def _rate(what: Injection) -> float:
    if what.rate_mbit is None:
        raise ValueError(f"{what.kind} needs a rate")
    return what.rate_mbit


_DO: Final[Mapping[Kind, Callable[[Bench, Injection], None]]] = {
    "link": _link,
    "tx": _tx,
    "rx": _rx,
    "pair_cut": _pair_cut,
    "node_cut": _node_cut,
    "stop": _stop,
    "kill": _kill,
    "flood": _flood,
    "heal": _heal,
}
