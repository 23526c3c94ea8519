"""Nodes of the stub driver, and keepers whose time the test sets."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.node_agent.gpu.cap_controller import Keeper
from deploy.node_agent.gpu.interface import Caps, Gpus
from deploy.node_agent.gpu.nvml import NvmlGpus
from deploy.node_agent.gpu.state_file import Memory
from tests.deploy.node_agent.gpu.stub_driver import StubDriver


@pytest.fixture
def driver(tmp_path: Path) -> StubDriver:
    """A driver with two GPUs, which `nvidia-ml-py` finds in this process."""
    driver = StubDriver(tmp_path / "node")
    driver.use()
    return driver


@pytest.fixture
def nvml(driver: StubDriver) -> Iterator[NvmlGpus]:
    """Opened on it."""
    assert driver.state.loads == 1
    gpus = NvmlGpus()
    yield gpus
    gpus.close()


@dataclass
class Keeping:
    """A keeper, its driver, and what time it is."""

    gpus: Gpus
    memory: Path | None = None
    acting: bool = True
    safe_share: float = 1.0
    now_s: float = 1000.0
    slept_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeper = self.started()

    def started(self, *, boot: str = "boot-1") -> Keeper:
        """Another agent over the same driver and file."""
        memory = Memory(self.memory, boot=boot)
        self.keeper = Keeper(
            gpus=self.gpus,
            memory=memory,
            acting=self.acting,
            safe_share=self.safe_share,
            now_s=lambda: self.now_s,
            sleep=self._sleep,
        )
        return self.keeper

    def rounds(self, count: int = 1, *, every_s: float = 0.25) -> None:
        """Some looks."""
        for _ in range(count):
            self.keeper.round()
            self.now_s += every_s

    def order(self, holder: str = "h", *, lease_s: float = 100.0, **more: Any) -> None:
        """From now on."""
        uuids = more.pop("uuids", ())
        self.keeper.order(holder, Caps(**more), uuids=uuids, until_s=self.now_s + lease_s)

    def _sleep(self, duration_s: float) -> None:
        self.slept_s.append(duration_s)
        self.now_s += duration_s


@pytest.fixture
def keeping(nvml: NvmlGpus, tmp_path: Path) -> Keeping:
    """Over the stub driver, with a state file."""
    return Keeping(nvml, memory=tmp_path / "state.json")
