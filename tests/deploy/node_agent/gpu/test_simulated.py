"""Simulated GPUs draw the power of their curves under both caps."""

import numpy as np
import pytest

from deploy.node_agent.gpu.errors import GpuLostError, NoPermissionError, OutOfRangeError
from deploy.node_agent.gpu.interface import Caps
from deploy.node_agent.gpu.simulated import SimulatedDriver
from fleet.gpus import builtin_gpus
from power.curves import power_curve

SPEC = builtin_gpus().get("H100-SXM")


@pytest.fixture
def gpus() -> SimulatedDriver:
    return SimulatedDriver(spec=SPEC, count=1, now_s=lambda: 0.0, rng=np.random.default_rng(0))


def test_a_clock_lock_and_a_power_limit_both_take_effect(gpus: SimulatedDriver) -> None:
    (uuid,) = gpus.boards
    curve = power_curve(SPEC)
    free = gpus.read(uuid)
    assert free.power_w == pytest.approx(curve.busy_w().mid)
    gpus.lock_clock(uuid, 1485)
    locked = gpus.read(uuid)
    assert (locked.sm_clock_mhz, locked.slowed_by) == (1485, ())
    assert locked.power_w == pytest.approx(curve.busy_w(1485 / 1980).mid)
    gpus.set_power_limit(uuid, 350.0)
    limited = gpus.read(uuid)
    assert limited.power_w == pytest.approx(350.0, abs=1.0)
    assert limited.slowed_by == ("power-cap",)
    assert limited.sm_clock_mhz is not None
    assert limited.sm_clock_mhz < 1485
    assert gpus.enforced(uuid) == Caps(350.0, 1485)
    gpus.reload()
    assert gpus.enforced(uuid) == Caps(SPEC.tdp_w, None)


def test_energy_is_power_over_time() -> None:
    now_s = 0.0
    gpus = SimulatedDriver(spec=SPEC, count=1, now_s=lambda: now_s, rng=np.random.default_rng(0))
    (uuid,) = gpus.boards
    power_w = gpus.read(uuid).power_w
    now_s = 10.0
    assert power_w is not None
    assert gpus.read(uuid).energy_j == pytest.approx(10 * power_w)


def test_the_simulated_driver_fails_as_real_drivers_do(gpus: SimulatedDriver) -> None:
    (uuid,) = gpus.boards
    with pytest.raises(OutOfRangeError, match="is outside of"):
        gpus.set_power_limit(uuid, 5.0)
    with pytest.raises(OutOfRangeError, match="1499 MHz is no clock"):
        gpus.lock_clock(uuid, 1499)
    gpus.ignored_share = 1.0
    gpus.set_power_limit(uuid, 400.0)
    assert gpus.enforced(uuid) == Caps(SPEC.tdp_w)
    gpus.refused_share = 1.0
    with pytest.raises(NoPermissionError):
        gpus.lock_clock(uuid, 1500)
    gpus.boards[uuid].lost = True
    with pytest.raises(GpuLostError):
        gpus.read(uuid)
