"""Expert copies that have to move as loads drift, window by window, and how even each way stays.

Sweeps, each from a plan for its first window: prompts of 512, 1024, 2048 and 4096 tokens (prefill; 288 slots on 32
GPUs of 4 nodes) and four decode workloads one after another (288 slots on 72 GPUs of 9 nodes).  Ways:

- `frozen`: the first plan stays.  `EPLB`: its global policy again in each window; `relabelled`: the same after our
  assignment, which changes no load.  `new plan`: this planner again, relabelled.
- `fewest`: `placement.migration` on the window it is judged on, to a mean imbalance of 1.05 and of 1.02.
- `fewest, nearest`: the same under the rule nearest, from a plan made for it; prefill only.
- `ahead`: on windows seen before only, the last one or its forecast, to 1.02, and as even as moving
  5 % of the copies makes it.  `imbalance` is under the loads of the last window seen, `lived_imbalance` under those of
  the window that came.

`fewest_moves` has settings (targets, widths); they were chosen on these recordings.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.eplb import eplb_global
from bench.expert_loads import Case, named
from bench.harness import Row
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.drift import forecast
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration import minimise_moves, moved_copies, relabelled
from placement.nearest import balanced_nearest

Way = Callable[[Ints, Floats], Ints]  # the placement loaded and all windows up to now; what comes in its place
CEILINGS = (1.05, 1.02)
NEAREST = Dispatch.NEAREST
SPENT = 0.05  # part of the copies


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
    rows = []
    for sweep in SWEEPS:
        cases = [named(name) for name in sweep.windows]
        for way, step, ahead in _ways(sweep.layout):
            rows += _rows(sweep, cases, way, step, ahead=ahead)
    return rows


def _ways(layout: Layout) -> list[tuple[str, Way, bool]]:
    slots, gpus = layout.slots, layout.gpus

    def eplb(loaded: Ints, seen: Floats) -> Ints:  # noqa: ARG001 - it knows no placement before
        return eplb_global(seen[-1], slots=slots, gpus=gpus)

    def fewest(ceiling: float, tokens: Callable[[Floats], Floats]) -> Way:
        return lambda loaded, seen: minimise_moves(loaded, tokens(seen), layout=layout, ceiling=ceiling)

    def spent(tokens: Callable[[Floats], Floats]) -> Way:
        return lambda loaded, seen: minimise_moves(
            loaded, tokens(seen), layout=layout, ceiling=1.005, max_moves=int(SPENT * loaded.size)
        )

    def nearest(ceiling: float) -> Way:
        return lambda loaded, seen: minimise_moves(loaded, seen[-1], layout=layout, rule=NEAREST, ceiling=ceiling)

    return [
        ("frozen", lambda loaded, _: loaded, False),
        ("EPLB", eplb, False),
        ("EPLB, relabelled", lambda loaded, seen: relabelled(eplb(loaded, seen), loaded, layout=layout), False),
        (
            "new plan, relabelled",
            lambda loaded, seen: relabelled(balanced(seen[-1], layout=layout), loaded, layout=layout),
            False,
        ),
        *((f"fewest to {ceiling}", fewest(ceiling, _last), False) for ceiling in CEILINGS),
        ("ahead, last window, 1.02", fewest(1.02, _last), True),
        ("ahead, forecast, 1.02", fewest(1.02, _foreseen), True),
        ("ahead, last window, 5 %", spent(_last), True),
        ("ahead, forecast, 5 %", spent(_foreseen), True),
        *((f"fewest to {ceiling}, {NEAREST}", nearest(ceiling), False) for ceiling in CEILINGS if layout.nodes == 4),
    ]


def _last(seen: Floats) -> Floats:
    last: Floats = seen[-1]
    return last


def _foreseen(seen: Floats) -> Floats:
    following: Floats = forecast(seen).tokens[0]
    return following


def _rows(sweep: Sweep, cases: list[Case], way: str, step: Way, *, ahead: bool) -> list[Row]:
    layout, windows = sweep.layout, np.stack([case.tokens for case in cases])
    rule = NEAREST if way.endswith(NEAREST) else Dispatch.EQUAL
    if way.startswith("EPLB"):
        loaded = eplb_global(windows[0], slots=layout.slots, gpus=layout.gpus)
    else:
        loaded = (balanced_nearest if rule is NEAREST else balanced)(windows[0], layout=layout)
    rows: list[Row] = []
    for at in range(1, len(windows)):
        seen = windows[: at if ahead else at + 1]
        started_s = time.process_time()
        following = step(loaded, seen)
        cpu_ms = 1000 * (time.process_time() - started_s)
        moved = moved_copies(loaded, following, layout=layout)
        rows.append(
            {
                "sweep": sweep.name,
                "loads": cases[at].source,
                "way": way,
                "window": cases[at].name,
                "stale_imbalance": imbalance(loaded, windows[at], layout=layout, rule=rule).mean,
                "imbalance": imbalance(following, seen[-1], layout=layout, rule=rule).mean,
                "lived_imbalance": imbalance(following, windows[at], layout=layout, rule=rule).mean,
                "worst_layer": imbalance(following, windows[at], layout=layout, rule=rule).max,
                "moved_copies": moved,
                "moved_percent": 100 * moved / loaded.size,
                "cpu_ms": cpu_ms,
            }
        )
        loaded = following
    means = {
        name: float(np.mean([row[name] for row in rows]))
        for name, value in rows[0].items()
        if not isinstance(value, str)
    }
    return [*rows, {"sweep": sweep.name, "loads": cases[0].source, "way": way, "window": "mean", **means}]
