"""Provides a job on a small fabric in which the correct cable of each connection is obvious."""

from typing import Any


def two_rings(**changes: Any) -> dict[str, Any]:
    """Build two rings between two leaves with two cables: one cable per ring, unless a hash puts both on one."""
    network = [
        {"name": "leaf-[0-1]", "tier": "leaf", "uplinks": ["spine-[0-1]"], "link_gb_per_s": 25},
        {"name": "spine-[0-1]", "tier": "spine"},
    ]
    nodes = [{"name": f"n{leaf}[0-1]", "nic_gb_per_s": 25, "leaves": [f"leaf-{leaf}"]} for leaf in (0, 1)]
    rings = [{"name": f"ring-{place}", "members": [f"n0{place}", f"n1{place}"]} for place in (0, 1)]
    site = {"name": "north", "network": network, "nodes": nodes}
    return {"job": {"name": "pretrain", "rings": rings}, "topology": {"sites": [site]}} | changes
