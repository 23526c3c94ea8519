"""Nodes of the stub driver, and cap controllers whose time the test sets."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.node_agent.gpu.cap_controller import CapController
from deploy.node_agent.gpu.interface import Caps, GpuDriver
from deploy.node_agent.gpu.nvml import NvmlDriver
from deploy.node_agent.gpu.state_file import StateFile
from tests.deploy.node_agent.gpu.stub_driver import StubDriver


@pytest.fixture
def driver(tmp_path: Path) -> StubDriver:
    """A driver with two GPUs, which `nvidia-ml-py` finds in this process."""
    driver = StubDriver(tmp_path / "node")
    driver.use()
    return driver


@pytest.fixture
def nvml(driver: StubDriver) -> Iterator[NvmlDriver]:
    """The NVML driver, opened on the stub driver."""
    assert driver.state.loads == 1
    gpus = NvmlDriver()
    yield gpus
    gpus.close()


@dataclass
class CapHarness:
    """A cap controller, its driver, and the present time."""

    gpus: GpuDriver
    memory: Path | None = None
    acting: bool = True
    safe_share: float = 1.0
    now_s: float = 1000.0
    slept_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cap_controller = self.restart()

    def restart(self, *, boot: str = "boot-1") -> CapController:
        """Start another agent over the same driver and state file."""
        memory = StateFile(self.memory, boot=boot)
        self.cap_controller = CapController(
            gpus=self.gpus,
            state_file=memory,
            acting=self.acting,
            safe_share=self.safe_share,
            now_s=lambda: self.now_s,
            sleep=self._sleep,
        )
        return self.cap_controller

    def reconcile(self, count: int = 1, *, every_s: float = 0.25) -> None:
        """Reconcile several times."""
        for _ in range(count):
            self.cap_controller.reconcile()
            self.now_s += every_s

    def request(self, holder: str = "h", *, lease_s: float = 100.0, **more: Any) -> None:
        """Request these caps from the present time on."""
        uuids = more.pop("uuids", ())
        self.cap_controller.request(holder, Caps(**more), uuids=uuids, until_s=self.now_s + lease_s)

    def _sleep(self, duration_s: float) -> None:
        self.slept_s.append(duration_s)
        self.now_s += duration_s


@pytest.fixture
def cap_harness(nvml: NvmlDriver, tmp_path: Path) -> CapHarness:
    """A cap controller over the stub driver, with a state file."""
    return CapHarness(nvml, memory=tmp_path / "state.json")
