"""Names of the node labels for each level of the topology; per level the first label that is set takes precedence."""

from collections.abc import Mapping

from fleet.documents import Frozen


class LabelNames(Frozen):
    """Fleetwright's labels first, then those of Kubernetes, Ray, topograph and the GPU vendors."""

    node: tuple[str, ...] = ("fleetwright.io/node",)  # Ray only, where nodes have no own name
    site: tuple[str, ...] = ("fleetwright.io/site",)  # else the zone, else the region
    region: tuple[str, ...] = ("topology.kubernetes.io/region", "ray.io/availability-region")
    zone: tuple[str, ...] = ("topology.kubernetes.io/zone", "ray.io/availability-zone")

    ups: tuple[str, ...] = ("fleetwright.io/ups",)
    pdu: tuple[str, ...] = ("fleetwright.io/pdu", "fleetwright.io/power-domain", "cluster/power-domain")
    row: tuple[str, ...] = ("fleetwright.io/row", "cluster/row")
    rack: tuple[str, ...] = ("fleetwright.io/rack", "cluster/rack")

    leaf: tuple[str, ...] = (
        "fleetwright.io/leaf",
        "fabric.topograph.run/tier-0",
        "network.topology.nvidia.com/leaf",
    )
    leaf_of_rail: str = "fleetwright.io/leaf-rail-"  # followed by the rail: leaf-rail-0, leaf-rail-1, ...
    spine: tuple[str, ...] = (
        "fleetwright.io/spine",
        "fabric.topograph.run/tier-1",
        "network.topology.nvidia.com/spine",
    )
    core: tuple[str, ...] = (
        "fleetwright.io/core",
        "fabric.topograph.run/tier-2",
        "network.topology.nvidia.com/core",
    )
    scale_up: tuple[str, ...] = (
        "fleetwright.io/scale-up",
        "accelerator.topograph.run/domain",
        "network.topology.nvidia.com/accelerator",
        "nvidia.com/gpu.clique",
    )
    gpu: tuple[str, ...] = (
        "fleetwright.io/gpu",
        "nvidia.com/gpu.product",
        "amd.com/gpu.product-name",
        "ray.io/accelerator-type",
        "cloud.google.com/gke-accelerator",
    )


def first_set(labels: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """The value of the first of these labels that is set and not empty."""
    return next((labels[name] for name in names if labels.get(name)), None)
