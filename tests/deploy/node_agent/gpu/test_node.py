"""GPUs as the device of the guard: clock shares become clocks or power limits by phase.  The test sets the time."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.gpu.cap_controller import CapController
from deploy.node_agent.gpu.curves import brake_caps, caps_at, curve_of, share_of
from deploy.node_agent.gpu.errors import DriverGoneError
from deploy.node_agent.gpu.interface import Caps, GpuLimits
from deploy.node_agent.gpu.node import GpuNode, PhaseSource, WorkloadPhases
from deploy.node_agent.gpu.simulated import SimulatedDriver
from deploy.node_agent.gpu.state_file import StateFile
from deploy.node_agent.schemas import ClocksCommand, PhaseName
from fleet.gpus import builtin_gpus
from power.controls import NodeClocks, Phase

SPEC = builtin_gpus().get("H100-SXM")


@dataclass
class Node:
    now_s: float = 100.0
    gpus: SimulatedDriver = field(init=False)
    node: GpuNode = field(init=False)

    def __post_init__(self) -> None:
        clock: Callable[[], float] = lambda: self.now_s  # noqa: E731
        self.gpus = SimulatedDriver(spec=SPEC, count=2, now_s=clock, rng=np.random.default_rng(0))
        cap_controller = CapController(gpus=self.gpus, state_file=StateFile(None), acting=True, now_s=clock)
        self.node = GpuNode(cap_controller=cap_controller, phases=WorkloadPhases(), now_s=clock)
        self.polls()

    def polls(self, count: int = 2) -> None:
        for _ in range(count):
            self.node.refresh()
            self.node.cap_controller.reconcile()
            self.now_s += 0.25

    def report(self, phase: Phase, *, lease_s: float = 100.0) -> None:
        self.node.phases.report("w", phase, until_s=self.now_s + lease_s)

    @property
    def locks(self) -> set[int | None]:
        return {board.lock_mhz for board in self.gpus.boards.values()}


def test_the_clock_of_the_reported_phase_is_enforced() -> None:
    node = Node()
    node.node.set_clocks(NodeClocks(0.9, 0.6))
    node.polls()
    assert node.locks == {1185}  # no report: the lower of both; 0.6 x 1980 = 1188, rounded down
    for phase, lock in ((Phase.TOKEN, 1770), (Phase.PROMPT, 1185), (Phase.TRAINING, 1185), (Phase.IDLE, 1185)):
        node.report(phase)
        node.polls()
        assert node.locks == {lock}, phase
        state = node.node.read()
        assert (state.clocks, state.phase) == (NodeClocks(0.9, 0.6), phase)
    node.report(Phase.TOKEN, lease_s=1.0)
    node.polls()
    assert node.locks == {1770}
    node.now_s += 1.0
    node.polls()
    assert node.locks == {1185}  # the lease of the report expired
    assert node.node.node_phase() == (Phase.PROMPT, PhaseSource.UTILIZATION)


def test_the_phase_with_the_highest_power_counts_for_the_node() -> None:
    node = Node()
    node.node.phases.report("a", Phase.TOKEN, until_s=1e9)
    node.node.phases.report("b", Phase.PROMPT, until_s=1e9)
    assert node.node.node_phase() == (Phase.PROMPT, PhaseSource.WORKERS)


def test_an_idle_node_is_detected_by_its_utilisation() -> None:
    node = Node()
    for board in node.gpus.boards.values():
        board.load = 0.0
    node.polls()
    assert node.node.node_phase() == (Phase.IDLE, PhaseSource.UTILIZATION)


def test_ignored_clocks_are_not_reported_as_enforced() -> None:
    node = Node()
    node.gpus.ignored_share = 1.0
    node.node.set_clocks(NodeClocks(0.9, 0.6))
    node.polls()
    assert node.node.read().clocks == NodeClocks(1.0, 1.0)
    node.gpus.ignored_share = 0.0
    node.polls(8)
    assert node.node.read().clocks == NodeClocks(0.9, 0.6)


def test_the_brake_is_the_lowest_clock_and_releases() -> None:
    node = Node()
    node.node.set_clocks(NodeClocks(0.9, 0.9))
    node.polls()
    node.node.brake(on=True)
    assert not node.node.read().braked  # requested, not enforced
    node.polls()
    limits = node.gpus.limits(next(iter(node.gpus.boards)))
    assert node.locks == {limits.brake_clock_mhz}
    assert node.node.read().braked
    node.node.brake(on=False)
    node.polls()
    assert node.locks == {1770}
    assert not node.node.read().braked


def test_a_reload_increments_the_epoch_and_the_clocks_are_set_again() -> None:
    node = Node()
    node.node.set_clocks(NodeClocks(0.6, 0.6))
    node.polls()
    before = node.node.read().epoch
    node.gpus.reload()
    assert node.locks == {None}
    node.polls()
    assert (node.node.read().epoch, node.locks) == (before + 1, {1185})


def test_the_age_of_the_poll_is_reported_and_an_old_poll_fails() -> None:
    node = Node()
    node.now_s += 1.0
    assert node.node.read().age_s == pytest.approx(1.25)
    node.now_s += 10.0
    with pytest.raises(DriverGoneError, match="the driver does not respond"):
        node.node.read()


def test_a_lost_gpu_counts_with_its_maximum_power() -> None:
    node = Node()
    before_w = node.node.read().power_w
    for board in node.gpus.boards.values():
        board.load = 0.0
    node.polls()
    idle_w = node.node.read().power_w
    assert idle_w < before_w
    next(iter(node.gpus.boards.values())).lost = True
    node.polls()
    assert node.node.read().power_w > idle_w + (SPEC.tdp_w or 0.0) / 2


def test_an_unguarded_agent_sets_no_caps_until_a_guard_connects() -> None:
    node = Node()
    safe = NodeClocks(0.7, 0.5)
    agent = NodeAgent(server="n", device=node.node, safe=safe, now_s=lambda: node.now_s, guarded=False)
    agent.tick()
    node.polls()
    assert node.locks == {None}
    agent.set_clocks(ClocksCommand(guard="g", lease_s=5.0, token_clock=0.9, prompt_clock=0.8))
    node.polls()
    assert node.locks == {1575}
    assert agent.telemetry().phase is PhaseName.PROMPT
    node.now_s += 5.0
    agent.tick()
    node.polls()
    assert node.locks == {990}


def test_a_brake_sets_a_power_limit_even_without_a_known_minimum() -> None:
    legacy, curve = GpuLimits(max_w=6600.0), curve_of("Server")
    limit_w = brake_caps(limits=legacy, curve=curve).power_limit_w
    assert limit_w is not None
    assert 0.0 < limit_w < (caps_at(0.3, limits=legacy, curve=curve).power_limit_w or 0.0)
    assert brake_caps(limits=GpuLimits(min_w=200.0, max_w=700.0), curve=curve) == Caps(power_limit_w=200.0)


@pytest.mark.parametrize("name", ["H100-SXM", "a board of no catalogue"])
def test_without_clock_control_a_clock_share_maps_to_a_power_limit_and_back(name: str) -> None:
    limits = GpuLimits(min_w=200.0, max_w=700.0, default_w=700.0)
    curve = curve_of(name)
    shares = [0.5, 0.6, 0.7, 0.8, 0.9]
    caps = [caps_at(share, limits=limits, curve=curve) for share in shares]
    watts = [each.power_limit_w or 0.0 for each in caps]
    assert watts == sorted(watts)
    assert 200.0 <= watts[0] < watts[-1] <= 700.0
    assert all(each.clock_mhz is None for each in caps)
    for share, each in zip(shares, caps, strict=True):
        if each.power_limit_w != 700.0:
            assert share_of(each, limits=limits, curve=curve) == pytest.approx(share, abs=1e-3)
    assert caps_at(1.0, limits=limits, curve=curve) == Caps()
    assert share_of(Caps(), limits=limits, curve=curve) == 1.0
