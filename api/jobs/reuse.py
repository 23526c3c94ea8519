"""Uses a stored result again for the same request: the same text, catalogues and release within some time."""

import json
from datetime import timedelta
from importlib.metadata import version

from api.jobs.catalogues import versions_of
from api.jobs.kinds import JobKind
from api.jobs.outcome import Solved, Task
from api.jobs.sweeps import CHILDREN
from api.store import Transaction, canonical_json, sha256_hex


def content_of(kind: JobKind, task: Task) -> str | None:
    """Hash what the result depends on; None where it depends on more than the request and its inputs."""
    if not kind.cacheable:
        return None
    inputs = {name: value for name, value in task.inputs.items() if name != CHILDREN}  # these follow from the others
    parts = {"kind": kind.name, "request": task.request, "inputs": inputs, "version": version("fleetwright")}
    return sha256_hex(canonical_json(parts))


def inputs_of(task: Task) -> str:
    """Write which release solved, and which versions of the catalogues."""
    return canonical_json({"release": version("fleetwright"), "versions": versions_of(task.inputs)})


async def earlier_result(tx: Transaction, kind: JobKind, task: Task, *, reuse_s: float) -> Solved | None:
    """Return a result that is not older than `reuse_s` as if it had been solved again."""
    content = content_of(kind, task)
    if content is None or not reuse_s:
        return None
    stored = await tx.results.of_content(content, since=task.now - timedelta(seconds=reuse_s))
    if stored is None:
        return None
    return Solved(
        output=stored.result,
        request=stored.request,
        columns=json.loads(stored.head.summary),
        content_sha256=content,
        inputs=stored.head.inputs,
    )
