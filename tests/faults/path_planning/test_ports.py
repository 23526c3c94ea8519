"""Source ports: with the model's hash they lead to the planned path; with a probed table they come from it."""

import numpy as np
import pytest

from faults.path_planning import choices, hashed, make_plan, planned, probes, read_probed
from faults.path_planning.ecmp import FIRST_PORT, PORTS, Fabric
from faults.path_planning.ports import flow_label, hccl_file
from fleet.documents import RuleError
from tests.faults.path_planning.trees import job, tree


@pytest.mark.parametrize("ports", [1, 2])
def test_a_chosen_port_leads_to_the_planned_path(ports: int) -> None:
    bonds = [[0, 1]] if ports == 2 else []
    plan = make_plan(job(tree(pods=2, width=4, hosts=4, ports=ports, parallel=2), seed=4, bonds=bonds))
    rows = choices(plan)
    fabric = Fabric(plan.traffic)
    number = {nic.name: index for index, nic in enumerate(plan.traffic.nics)}
    for part, row in zip(plan.parts, rows, strict=True):
        assert row.udp_source_port is not None
        assert FIRST_PORT <= row.udp_source_port < FIRST_PORT + PORTS
        out, into, links = fabric.sent(
            np.array([number[row.source]]), np.array([number[row.target]]), np.array([row.udp_source_port])
        )
        assert tuple(int(link) for link in links[0] if link >= 0) == plan.paths[part]
        assert (out[0], into[0]) == (row.source_port, row.target_port)
        assert row.by == "model"


def test_connections_of_a_flow_on_one_path_have_distinct_ports() -> None:
    rows = choices(make_plan(job(tree(pods=1, width=2, hosts=2), connections=8)))
    ports = [(row.source, row.target, row.udp_source_port) for row in rows]
    assert len(set(ports)) == len(ports)


def test_a_probed_table_overrides_the_model() -> None:
    plan = make_plan(job(tree(pods=1, width=2, hosts=2), seed=1))
    rows = choices(plan)
    lines = ["from,to,port,path", *(f"{row.source},{row.target},50001,{row.path}" for row in rows[1:])]
    found = choices(plan, read_probed(lines))
    assert [row.udp_source_port for row in found] == [None, *[50001] * (len(rows) - 1)]
    assert {row.by for row in found} == {"probed"}


@pytest.mark.parametrize("port", ["", "49151", "65536", "x", "50000.0", "-1"])
def test_a_port_outside_rocev2_is_refused(port: str) -> None:
    with pytest.raises(RuleError, match="line 2"):
        read_probed(["from,to,port,path", f"a,b,{port},p"])


def test_a_table_without_its_columns_is_refused() -> None:
    with pytest.raises(RuleError, match="lacks the columns path, port"):
        read_probed(["from,to"])


@pytest.mark.parametrize("port", [FIRST_PORT, 50_000, FIRST_PORT + PORTS - 1])
def test_a_flow_label_folds_into_its_port(port: int) -> None:
    label = flow_label(port)
    assert 0 < label < 1 << 20
    assert 0xC000 | (label & 0x3FFF) ^ label >> 14 == port


def test_probes_cover_every_path_of_the_model() -> None:
    plan = make_plan(job(tree(pods=2, width=4, hosts=4), seed=4))
    fabric = Fabric(plan.traffic)
    number = {nic.name: index for index, nic in enumerate(plan.traffic.nics)}
    for probe in probes(plan)[:8]:
        ports = np.arange(probe.first_port, probe.first_port + probe.ports)
        source, target = (np.full(len(ports), number[name]) for name in (probe.source, probe.target))
        links = fabric.sent(source, target, ports)[2]
        assert len(np.unique(links, axis=0)) == probe.paths


def test_hashing_loads_some_cable_twice_where_a_plan_does_not() -> None:
    traffic = job(tree(pods=2, width=4, hosts=4), seed=2)
    load, drawn = planned(make_plan(traffic)), hashed(traffic, draws=50, seed=1)
    assert load.greatest == pytest.approx(1.0)
    assert load.slowest_ring == pytest.approx(1.0)
    assert drawn.p50 >= 2
    assert drawn.mean <= drawn.worst
    assert drawn.slowest_ring_mean <= 0.5 + 1e-9


def test_the_hccl_file_has_one_line_per_pair_of_addresses() -> None:
    addresses = {f"n0-{leaf}-{host}:0": f"10.0.{leaf}.{host}" for leaf in range(2) for host in range(2)}
    plan = make_plan(job(tree(pods=1, width=2, hosts=2), connections=2, addresses=addresses))
    lines = hccl_file(choices(plan), plan.traffic).splitlines()
    assert len(lines) == 4
    assert all(line.count(",") == 2 and line.startswith("10.0.") for line in lines)


def test_hccl_needs_addresses() -> None:
    plan = make_plan(job(tree(pods=1, width=2, hosts=2)))
    with pytest.raises(RuleError, match="has none for n0-0-0:0"):
        hccl_file(choices(plan), plan.traffic)
