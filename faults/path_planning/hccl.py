"""MultiQpSrcPort.cfg: the file from which HCCL (Ascend) reads the source ports of each address pair.

`HCCL_RDMA_QP_PORT_CONFIG_PATH` names its folder: a line `source,target=port,port,...` per pair, a queue pair per port,
at most 131,072 lines and 32 ports (hiascend.com, CANN 8.5, read November 2026).  Data is divided evenly over the ports.
"""

from collections.abc import Sequence
from typing import Final

from faults.path_planning.ports import Row
from faults.path_planning.traffic import Traffic
from fleet.documents import RuleError

MAX_LINES: Final = 131_072
MAX_PORTS: Final = 32


def port_file(rows: Sequence[Row], traffic: Traffic) -> str:
    """Return the file's text; raise RuleError for an unknown address or port."""
    addresses = {nic.name: nic.address for nic in traffic.nics}
    RuleError.raise_for(
        (("addresses",), f"has none for {name}") for name, address in addresses.items() if address is None
    )
    pairs: dict[tuple[str | None, str | None], list[int]] = {}
    for row in rows:
        if row.udp_source_port is None:
            raise RuleError([((), f"{row.source} to {row.target}: no source port is known for {row.path}")])
        pairs.setdefault((addresses[row.source], addresses[row.target]), []).append(row.udp_source_port)
    if len(pairs) > MAX_LINES or any(len(ports) > MAX_PORTS for ports in pairs.values()):
        raise RuleError([((), f"the form allows {MAX_LINES:,} pairs and {MAX_PORTS} ports per pair")])
    return "".join(f"{source},{target}={','.join(map(str, ports))}\n" for (source, target), ports in pairs.items())
