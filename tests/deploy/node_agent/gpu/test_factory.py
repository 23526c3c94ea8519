"""The registry of drivers, against the places that repeat their names."""

import json
from pathlib import Path

from api.cli.agent.options import DeviceName
from deploy.node_agent.gpu.factory import DRIVERS, DriverName

SCHEMA = Path(__file__).parents[4] / "helm" / "fleetwright" / "values.schema.json"
OUT_OF_BAND = {DeviceName.REDFISH.value}  # one agent per BMC, not one per node


def test_every_name_has_a_driver_and_a_device() -> None:
    assert set(DRIVERS) == set(DriverName)
    assert {device.driver for device in DeviceName} - {None} == set(DriverName)
    assert not DeviceName.SIMULATED.is_real


def test_the_chart_offers_the_devices_that_run_on_a_node() -> None:
    offered = json.loads(SCHEMA.read_text())["properties"]["agent"]["properties"]["device"]["enum"]
    assert set(offered) == {device.value for device in DeviceName} - OUT_OF_BAND
    template = (SCHEMA.parent / "templates" / "agent" / "daemonset.yaml").read_text()
    privileged = " ".join(f'"{name}"' for name, driver in DRIVERS.items() if driver.in_band)
    assert f"(list {privileged})" in template
