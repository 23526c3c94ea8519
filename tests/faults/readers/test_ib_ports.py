"""InfiniBand and RoCE ports from sysfs files."""

import pytest

from faults.observations import Observation, Port
from faults.readers import ParseErrors
from faults.readers.ib_ports import parse_ports

ROOT = "/sys/class/infiniband/mlx5_0/ports/1"
FILES = {
    f"{ROOT}/state": "4: ACTIVE\n",
    f"{ROOT}/phys_state": "5: LinkUp\n",
    f"{ROOT}/rate": "400 Gb/sec (4X NDR)\n",
    f"{ROOT}/counters/port_xmit_data": "123456789012\n",
    f"{ROOT}/counters/link_downed": "2\n",
    f"{ROOT}/counters/VL15_dropped": "N/A (no PMA)\n",
    f"{ROOT}/hw_counters/out_of_sequence": "17\n",
    "/sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
}


def test_a_port_is_read_with_state_rate_and_counters() -> None:
    tally = ParseErrors()

    (observation,) = parse_ports(FILES, at_s=2.0, node=3, tally=tally)

    counters = (("link_downed", 2), ("port_xmit_data", 123456789012), ("hw_out_of_sequence", 17))
    assert observation == Observation(2.0, 3, Port("mlx5_0", 1, "ACTIVE", 400.0, counters))
    assert tally.total == 0


def test_ports_are_sorted_and_fractional_rates_are_read() -> None:
    texts = {
        f"{device}/ports/{port}/{name}": text
        for device in ("mlx5_1", "bnxt_re0")
        for port in (2, 1)
        for name, text in (("state", "1: DOWN"), ("rate", "2.5 Gb/sec (1X SDR)"))
    }

    ports = [observation.values for observation in parse_ports(texts, at_s=0.0, node=0, tally=ParseErrors())]

    assert ports == [Port(device, port, "DOWN", 2.5, ()) for device in ("bnxt_re0", "mlx5_1") for port in (1, 2)]


@pytest.mark.parametrize(
    ("name", "text", "defect", "ports"),
    [
        ("state", "", "state is missing or malformed", 0),
        ("state", "4: " + "A" * 10_000, "state is missing or malformed", 0),
        ("rate", "fast", "rate is missing or malformed", 0),
        ("rate", "9" * 400 + " Gb/sec", "rate is missing or malformed", 0),
        ("counters/link_downed", "two", "counter is no whole number", 1),
        ("counters/link_downed", "-1", "counter is no whole number", 1),
        ("counters/link_downed", "9" * 5000, "counter is no whole number", 1),
        ("counters/link_downed", "", "counter is no whole number", 1),
    ],
)
def test_malformed_texts_are_counted(name: str, text: str, defect: str, ports: int) -> None:
    tally = ParseErrors()

    assert len(list(parse_ports({**FILES, f"{ROOT}/{name}": text}, at_s=0.0, node=0, tally=tally))) == ports
    assert tally.counts() == {f"port: {defect}": 1}
