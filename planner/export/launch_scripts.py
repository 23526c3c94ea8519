"""vLLM and SGLang without an orchestrator: a script for each replica group that starts one replica, and the routing."""

import shlex
from collections.abc import Iterator
from typing import Final

from planner.engine_flags import ServingEngine, engine_flags
from planner.export.groups import ReplicaGroup, WorkloadGroups
from planner.export.limits import LONG_REQUESTS, WIDE_ATTENTION
from planner.export.manifests import Export, ExportedFile, routing_json
from planner.export.provenance import comment_lines

NOT_EXPRESSED: Final = (
    "Clocks and power limits: a comment has the clock; `fleetwright agent` sets it.",
    "Number of replicas: a comment has it; each run of a script starts one replica.",
    "Routing weights: the file NAME-routing.json has them; a router must read it.",
    "The proxy between prefill and decode replicas.",
    LONG_REQUESTS,
    WIDE_ATTENTION,
)
NODES: Final = {
    ServingEngine.VLLM: (
        '--nnodes {nodes} --node-rank "${{NODE_RANK:?}}" --master-addr "${{HEAD_ADDRESS:?}}" '
        '$([ "$NODE_RANK" = 0 ] || echo --headless)'
    ),
    ServingEngine.SGLANG: (
        '--nnodes {nodes} --node-rank "${{NODE_RANK:?}}" --dist-init-addr "${{HEAD_ADDRESS:?}}:20000"'
    ),
}


def files(export: Export) -> Iterator[ExportedFile]:
    for workload in export.workloads:
        for group in workload.groups:
            yield ExportedFile(f"{group.name}.sh", _script(export, workload, group))
        yield ExportedFile(f"{workload.name}-routing.json", routing_json(workload))


def _script(export: Export, workload: WorkloadGroups, group: ReplicaGroup) -> str:
    engine = export.settings.engine
    found = engine_flags(group.settings, engine)
    nodes = group.nodes_per_replica
    clock = "" if group.clock == 1 else f", at {group.clock:g} of the full clock"
    spread = "" if nodes == 1 else f"; start it on each of {nodes} nodes with NODE_RANK and HEAD_ADDRESS"
    lines = [
        "#!/bin/sh",
        f"# Starts a replica of {group.option} for {workload.workload}; replicas of the plan: {group.count}.",
        f"# A replica runs on {group.gpus_per_replica} x {group.gpu.name}{clock}{spread}.",
        f"# Flags of {engine} {found.version}.",
        *(f"# Note: {note}." for note in found.notes),
        *comment_lines(export.source.annotations()),
    ]
    words = [*_in_pairs(found.flags), *([] if nodes == 1 else [NODES[engine].format(nodes=nodes)]), '"$@"']
    command = " \\\n  ".join([f"exec {shlex.join(found.command)}", *words])
    return "\n".join([*lines, command]) + "\n"


def _in_pairs(flags: tuple[str, ...]) -> list[str]:
    """Each flag with its value, quoted."""
    found: list[str] = []
    for word in flags:
        if word.startswith("--"):
            found.append(word)
        else:
            found[-1] += f" {shlex.quote(word)}"
    return found
