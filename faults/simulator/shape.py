"""The sizes of the job and its fabric: ranks, nodes, stages, rails, leaves, spines.

Every rank has its own NIC; the ranks of a node are one tensor group and never leave it.  A node is one (stage, replica)
pair with neighbouring replicas, as Megatron numbers them, so a data group is a run of nodes on one rail.
"""

from dataclasses import dataclass

from fleet.documents import RuleError


@dataclass(frozen=True, slots=True)
class Shape:
    """Counts of a cluster; `groups` has the communicating nodes, `cluster` their paths."""

    ranks: int
    per_node: int = 8  # ranks, NICs and rails of a node
    stages: int = 8  # of the pipeline
    leaf_nodes: int = 32  # nodes that share the leaf switches, one leaf per rail
    spines: int = 16  # ways between two leaves of a rail
    experts: int = 0  # nodes of an expert group, all-to-all on each rail; 0: a dense model
    scattered: float = 0.1  # share of the nodes outside their slot: spares, holes
    trees: bool = True  # the double binary tree beside the ring

    def __post_init__(self) -> None:
        unit = self.per_node * self.stages
        RuleError.raise_for(self._violations(unit))

    def _violations(self, unit: int) -> list[tuple[tuple[str | int, ...], str]]:
        violations: list[tuple[tuple[str | int, ...], str]] = []
        if self.ranks < 2 * unit or self.ranks % unit:
            violations.append((("ranks",), f"expected a multiple of {unit} from {2 * unit} up, got {self.ranks}"))
        if not 0.0 <= self.scattered <= 1.0:
            violations.append((("scattered",), f"expected 0 to 1, got {self.scattered}"))
        if self.experts and (self.experts < 2 or self.replicas % self.experts):
            violations.append(
                (("experts",), f"expected 0 or a divisor of {self.replicas} from 2 up, got {self.experts}")
            )
        return violations

    @property
    def nodes(self) -> int:
        return self.ranks // self.per_node

    @property
    def replicas(self) -> int:
        """Return the size of a data group."""
        return self.nodes // self.stages

    @property
    def pods(self) -> int:
        """Return the number of sets of nodes that share their leaves."""
        return -(-self.nodes // self.leaf_nodes)

    @property
    def leaves(self) -> int:
        return self.pods * self.per_node

    @property
    def uplinks(self) -> int:
        """Return the number of leaf-spine cables, each direction counted."""
        return 2 * self.leaves * self.spines
