"""Expert copies that have to move as loads drift, window by window, and how even each way stays.

Sweeps, each from a plan for its first window: prompts of 512, 1024, 2048 and 4096 tokens (prefill; 288 slots on 32
GPUs of 4 nodes) and four decode workloads one after another (288 slots on 72 GPUs of 9 nodes).  Ways:

- `frozen`: the first plan stays.  `EPLB`: its global policy again in each window; `relabelled`: the same after our
  assignment, which changes no load.  `new plan`: this planner again, relabelled.
- `fewest`: `placement.migration` on the window it is evaluated on, to a mean imbalance of 1.05 and of 1.02.
- `fewest, nearest`: the same under the rule nearest, from a plan made for it; prefill only.

`minimise_moves` has settings (targets, widths); they were chosen on these recordings.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.eplb import eplb_global
from bench.expert_loads import named
from bench.harness import Row
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration import minimise_moves, moved_copies, relabelled
from placement.nearest import balanced_nearest

Step = Callable[[Ints, Floats], Ints]  # the placement loaded and the loads of the window; the placement in its place
CEILINGS = (1.05, 1.02)


@dataclass(frozen=True, slots=True)
class Sweep:
    name: str
    windows: tuple[str, ...]
    layout: Layout


SWEEPS = (
    Sweep(
        "prefill lengths",
        ("prefill_in512", "prefill_in1024", "prefill_in2048", "prefill_in4096"),
        Layout.even(slots=288, gpus=32, nodes=4),
    ),
    Sweep(
        "decode workloads",
        ("decode_in500out1500", "decode_in1000out1000", "decode_in1800out100", "decode_in2000out100"),
        Layout.even(slots=288, gpus=72, nodes=9),
    ),
)


def run() -> list[Row]:
    return [row for sweep in SWEEPS for way in _ways(sweep.layout) for row in _rows(sweep, *way)]


def _ways(layout: Layout) -> list[tuple[str, Dispatch, Step]]:
    def eplb(_: Ints, tokens: Floats) -> Ints:
        return eplb_global(tokens, slots=layout.slots, gpus=layout.gpus)

    def again(loaded: Ints, tokens: Floats) -> Ints:
        return relabelled(balanced(tokens, layout=layout), loaded, layout=layout)

    def fewest(ceiling: float, rule: Dispatch) -> Step:
        return lambda loaded, tokens: minimise_moves(loaded, tokens, layout=layout, rule=rule, ceiling=ceiling)

    rules = [Dispatch.EQUAL, *([Dispatch.NEAREST] if layout.nodes == 4 else [])]
    return [
        ("frozen", Dispatch.EQUAL, lambda loaded, _: loaded),
        ("EPLB", Dispatch.EQUAL, eplb),
        ("EPLB, relabelled", Dispatch.EQUAL, lambda old, now: relabelled(eplb(old, now), old, layout=layout)),
        ("new plan, relabelled", Dispatch.EQUAL, again),
        *((f"fewest to {ceiling}, {rule}", rule, fewest(ceiling, rule)) for rule in rules for ceiling in CEILINGS),
    ]


def _rows(sweep: Sweep, way: str, rule: Dispatch, step: Step) -> list[Row]:
    layout, cases = sweep.layout, [named(name) for name in sweep.windows]
    first = cases[0].tokens
    if way.startswith("EPLB"):
        loaded = eplb_global(first, slots=layout.slots, gpus=layout.gpus)
    else:
        loaded = (balanced_nearest if rule is Dispatch.NEAREST else balanced)(first, layout=layout)
    rows: list[Row] = []
    for case in cases[1:]:
        started_s = time.process_time()
        following = step(loaded, case.tokens)
        cpu_ms = 1000 * (time.process_time() - started_s)
        moved = moved_copies(loaded, following, layout=layout)
        rows.append(
            {
                "sweep": f"{sweep.name} ({case.source})",
                "method": way,
                "window": case.name,
                "stale_imbalance": imbalance(loaded, case.tokens, layout=layout, rule=rule).mean,
                "imbalance": imbalance(following, case.tokens, layout=layout, rule=rule).mean,
                "moved_copies": moved,
                "moved_percent": 100 * moved / loaded.size,
                "cpu_ms": cpu_ms,
            }
        )
        loaded = following
    return rows
