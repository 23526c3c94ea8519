"""Random jobs that stopped, with the dumps of their ranks."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.testbed.stopped_jobs import Shape, Stop, StoppedJob


@dataclass(frozen=True, slots=True)
class Case:
    shape: Shape
    stops: Mapping[int, Stop]
    missing: frozenset[int]  # ranks without a dump
    dumps: Mapping[int, dict[str, Any]]

    def files(self) -> dict[str, bytes]:
        return {f"_dump_{rank}": json.dumps(dump).encode() for rank, dump in self.dumps.items()}


SHAPES: Final[Sequence[tuple[int, int, int, int]]] = (  # tensor, context, data, pipeline
    (2, 1, 2, 2),
    (2, 1, 2, 4),
    (4, 1, 2, 2),
    (2, 2, 2, 2),
    (1, 1, 4, 4),
    (4, 1, 4, 2),
    (4, 2, 2, 4),
    (8, 1, 2, 4),
    (2, 2, 4, 4),
    (8, 1, 4, 4),
    (8, 2, 4, 4),
    (4, 2, 8, 8),
    (8, 2, 8, 8),
)


def random_case(seed: int, *, how: Stop | None = None, max_ranks: int = 1024) -> Case:
    """Return a job of random shape with one culprit, or two with errors; up to 5 % of the dumps are missing."""
    draw = random.Random(seed)
    shapes = [each for each in SHAPES if each[0] * each[1] * each[2] * each[3] <= max_ranks]
    tensor, context, data, pipeline = draw.choice(shapes)
    shape = Shape(
        tensor=tensor,
        context=context,
        data=data,
        pipeline=pipeline,
        expert=draw.choice([each for each in (1, 2, 4) if data % each == 0]),
        microbatches=draw.randint(pipeline, 2 * pipeline),
        layers=draw.randint(1, 2),
        run_ahead=draw.choice([0, 0, 1, 4, 16]),
        prefetch=draw.random() < 0.5,
    )
    job = StoppedJob(shape)
    how = how or draw.choice([Stop.PROCESSOR, Stop.DEVICE, Stop.ERROR])
    culprits = draw.sample(range(shape.ranks), 2 if how is Stop.ERROR and draw.random() < 0.3 else 1)
    after = draw.uniform(0.2, 0.8)
    for rank in culprits:
        job.stop(rank, how, after=after)
    job.run()
    absent = set(draw.sample(range(shape.ranks), int(draw.uniform(0.0, 0.05) * shape.ranks)))
    absent |= set(culprits) if how is Stop.DEAD else set()
    timed = how is Stop.DEVICE or draw.random() < 0.3
    only_active = draw.random() < 0.5
    entries = draw.choice([60, 400, 2000])
    skew_s = {node: draw.gauss(0.0, 1e-3) for node in range(shape.ranks // 8 + 1)}
    batched = draw.random() < 0.4
    dumps = {
        rank: job.dump(
            rank, entries=entries, timed=timed, only_active=only_active, skew_s=skew_s[rank // 8], batched=batched
        )
        for rank in range(shape.ranks)
        if rank not in absent
    }
    return Case(shape, dict.fromkeys(culprits, how), frozenset(absent), dumps)
