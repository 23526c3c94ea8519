"""The registry of drivers, against the places that repeat their names."""

import json
from pathlib import Path

from deploy.node_agent.gpu.factory import DRIVERS, DriverName

SCHEMA = Path(__file__).parents[4] / "helm" / "fleetwright" / "values.schema.json"
OUT_OF_BAND = {DriverName.REDFISH.value}  # one agent per BMC, not one per node


def test_every_name_has_a_driver() -> None:
    assert set(DRIVERS) == set(DriverName)
    assert not DRIVERS[DriverName.SIMULATED].is_real


def test_the_chart_offers_the_devices_that_run_on_a_node() -> None:
    offered = json.loads(SCHEMA.read_text())["properties"]["agent"]["properties"]["device"]["enum"]
    assert set(offered) == {name.value for name in DriverName} - OUT_OF_BAND
    template = (SCHEMA.parent / "templates" / "agent" / "daemonset.yaml").read_text()
    privileged = " ".join(f'"{name}"' for name, driver in DRIVERS.items() if driver.in_band)
    assert f"(list {privileged})" in template
