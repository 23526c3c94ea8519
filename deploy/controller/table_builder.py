"""From a stored plan to a router's table: options become the deployments of the parts that take them."""

from collections import defaultdict
from collections.abc import Mapping

from api.schemas.plans import PlanRecord
from api.schemas.targets import TargetSpec
from deploy.common.errors import PlanUnusableError
from deploy.controller.plan_reader import allocations_by_part, planned_replicas
from deploy.router.table import Cell, CellWeights, Route, RoutingTable
from planner.request import Workload, bucket_name

MAX_IN_FLIGHT = 64  # of one replica, where nothing else is said


def routing_table(
    record: PlanRecord, spec: TargetSpec, *, most_in_flight: Mapping[str, int] | None = None
) -> RoutingTable:
    """Weights of the target's workload; raises PlanUnusableError.

    `most_in_flight` of a replica, by deployment: what its engine takes at once without queueing (`max_num_seqs`).
    """
    replicas = planned_replicas(record, spec)
    workload = next(known for known in record.request.workloads if known.name == spec.workload)
    deployments = spec.application.parts
    home = {entry.option: deployments[part] for entry, part in allocations_by_part(record, spec)}
    weights = _weights(record, workload, home)
    if not any(weights.values()):
        raise PlanUnusableError(f"plan {record.id} sends no request of {spec.workload!r} anywhere")
    used = {name for found in weights.values() for name in found}
    each = most_in_flight or {}
    return RoutingTable.of(
        version=record.id,
        buckets=workload.buckets,
        routes={
            name: Route(replicas=replicas[part], most_in_flight=each.get(name, MAX_IN_FLIGHT))
            for part, name in sorted(deployments.items())
            if name in used
        },
        weights=weights,
    )


def both_tables(old: RoutingTable, new: RoutingTable) -> RoutingTable:
    """Half of each, for while counts change from one plan to the other; raises PlanUnusableError."""
    if (old.input_tokens, old.output_tokens) != (new.input_tokens, new.output_tokens):
        raise PlanUnusableError(f"plans {old.version} and {new.version} have other buckets: no table is of both")
    cells = [
        CellWeights(
            row=row,
            column=column,
            weights={
                name: (weights.get(name, 0.0) + old.by_cell[row, column].get(name, 0.0)) / 2
                for name in weights.keys() | old.by_cell[row, column].keys()
            },
        )
        for (row, column), weights in new.by_cell.items()
    ]
    return RoutingTable(
        version=f"{new.version}+",
        input_tokens=new.input_tokens,
        output_tokens=new.output_tokens,
        share=new.share,
        routes={**old.routes, **new.routes},
        cells=tuple(cells),
    )


def _weights(record: PlanRecord, workload: Workload, home: Mapping[str, str]) -> dict[Cell, dict[str, float]]:
    """By deployment: those of its options together."""
    planned = record.plan.routing.get(workload.name, {})
    weights: dict[Cell, dict[str, float]] = {}
    for bucket in workload.buckets.buckets():
        found: dict[str, float] = defaultdict(float)
        for route, weight in planned.get(bucket_name(bucket), {}).items():
            if route not in home:
                raise PlanUnusableError(
                    f"plan {record.id} sends {bucket_name(bucket)} by {route}: a router sends a request to one "
                    "deployment, and not to one for its prompt and another for its answer"
                )
            found[home[route]] += weight
        total = sum(found.values())
        weights[bucket.row, bucket.column] = {name: weight / total for name, weight in found.items() if total > 0.0}
    return weights
