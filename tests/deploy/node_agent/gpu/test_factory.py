"""The registry of drivers, against the places that repeat their names."""

import json
import re
from itertools import pairwise
from pathlib import Path

from deploy.node_agent.gpu.factory import DRIVERS, DriverName

CHART = Path(__file__).parents[4] / "helm" / "fleetwright"


def test_every_driver_name_has_a_driver() -> None:
    assert set(DRIVERS) == set(DriverName)
    assert not DRIVERS[DriverName.SIMULATED].is_real


def test_the_chart_allows_exactly_the_devices_that_run_on_a_node() -> None:
    """An out-of-band driver has one agent per BMC, not one per node."""
    offered = {name.value for name, driver in DRIVERS.items() if driver.in_band or not driver.is_real}
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["agent"]["properties"]["device"]["enum"]) == offered
    lines = (CHART / "values.yaml").read_text().splitlines()
    comment = next(above for above, line in pairwise(lines) if line.startswith("  device: "))
    assert set(re.findall(r"`(\w+)`", comment)) == offered
