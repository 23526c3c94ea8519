"""From a stored plan to a router's table: each option becomes the deployment of its part."""

from collections import defaultdict
from collections.abc import Mapping

from api.schemas.plans import PlanRecord
from api.schemas.targets import TargetSpec
from deploy.common.errors import PlanUnusableError
from deploy.controller.plan_reader import allocations_by_part, planned_replicas
from deploy.router.table import Cell, CellWeights, Route, RoutingTable
from planner.request import Workload, bucket_name

MAX_IN_FLIGHT = 64  # of one replica, by default


def routing_table(
    record: PlanRecord, spec: TargetSpec, *, most_in_flight: Mapping[str, int] | None = None
) -> RoutingTable:
    """Return the weights of the target's workload; raise PlanUnusableError.

    `most_in_flight` has the requests that a replica serves at once without queueing (`max_num_seqs`), by deployment.
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
    """Mix half of each table, for the time in which counts change between the plans.  Raise PlanUnusableError."""
    if (old.input_tokens, old.output_tokens) != (new.input_tokens, new.output_tokens):
        raise PlanUnusableError(f"plans {old.version} and {new.version} have different buckets")
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
    """Return the weights by deployment: the sum over its options."""
    planned = record.plan.routing.get(workload.name, {})
    weights: dict[Cell, dict[str, float]] = {}
    for bucket in workload.buckets.buckets():
        found: dict[str, float] = defaultdict(float)
        for route, weight in planned.get(bucket_name(bucket), {}).items():
            if route not in home:
                raise PlanUnusableError(
                    f"plan {record.id} sends {bucket_name(bucket)} by {route}: a router sends each request to one "
                    "deployment, not to one for prefill and another for decode"
                )
            found[home[route]] += weight
        total = sum(found.values())
        weights[bucket.row, bucket.column] = {name: weight / total for name, weight in found.items() if total > 0.0}
    return weights
