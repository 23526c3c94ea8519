"""How even `placement.balance` places experts, and how fast, beside both policies of EPLB and the proven bound.

Imbalance is the mean over layers of the fullest GPU over the even share, for engines that share an expert's tokens
evenly among its copies.  Times are of the processor, on one core, the median of `REPEATS` runs after one to warm up;
`bench.eplb` places all layers at once and is many times quicker than what is published.
`doubled` counts the copies that EPLB's global policy lays on a GPU that already has that expert: wasted memory, and
not allowed to us.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.eplb import eplb, eplb_global
from bench.expert_loads import GROUPS, Case, named, synthetic
from placement.arrays import Ints
from placement.balance import balanced
from placement.bounds import lower_bound
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import check_slots

REPEATS = 7
SAME = 1 + 1e-9


@dataclass(frozen=True)
class Setting:
    slots: int
    gpus: int
    nodes: int


_DEEPSEEK = {
    Setting(288, 32, 4): ("decode_in2000out100", "decode_in500out1500", "prefill_in512", "prefill_in4096"),
    Setting(288, 72, 9): ("decode_in2000out100", "prefill_in2048"),
    Setting(320, 64, 8): ("decode_in1000out1000", "prefill_in4096"),
    Setting(256, 16, 2): ("decode_in2000out100", "prefill_in4096"),
    Setting(256, 64, 8): ("prefill_in4096",),
    Setting(288, 144, 18): ("decode_in2000out100",),
}
_OTHERS = {
    "qwen3-235b": (Setting(128, 8, 1), Setting(144, 16, 2), Setting(160, 32, 4)),
    "qwen3-30b": (Setting(128, 8, 1), Setting(144, 16, 2)),
    "olmoe-1b-7b": (Setting(64, 8, 1), Setting(80, 16, 2)),
    "deepseek-moe-16b": (Setting(64, 8, 1), Setting(72, 8, 1)),
    "mixtral-8x7b": (Setting(8, 4, 1), Setting(16, 8, 1), Setting(16, 4, 1)),
}


def run() -> list[dict[str, Any]]:
    deepseek = [_row(named(name), setting, groups=GROUPS) for setting, names in _DEEPSEEK.items() for name in names]
    others = [_row(synthetic(model), setting, groups=1) for model, settings in _OTHERS.items() for setting in settings]
    return deepseek + others


def _row(case: Case, setting: Setting, *, groups: int) -> dict[str, Any]:
    tokens, slots, gpus, nodes = case.tokens, setting.slots, setting.gpus, setting.nodes
    layout = Layout.even(slots=slots, gpus=gpus, nodes=nodes)
    ours, ours_ms = _timed(lambda: balanced(tokens, layout=layout))
    by_node, by_node_ms = _timed(lambda: eplb(tokens, slots=slots, groups=groups, nodes=nodes, gpus=gpus))
    by_all, by_all_ms = _timed(lambda: eplb_global(tokens, slots=slots, gpus=gpus))
    check_slots(ours, experts=tokens.shape[1], layout=layout)
    reached, policy, whole = (imbalance(placed, tokens, layout=layout).mean for placed in (ours, by_node, by_all))
    bound = float(lower_bound(tokens, layout=layout).mean())
    return {
        "case": case.name,
        "loads": case.source,
        "slots / GPUs / nodes": f"{slots} / {gpus} / {nodes}",
        "bound": bound,
        "ours": reached,
        "over_bound_percent": 100 * (reached / bound - 1),
        "eplb_hierarchical": policy if groups % nodes == 0 else None,
        "eplb_global": whole,
        "never_worse": "yes" if reached <= min(policy, whole) * SAME else "no",
        "doubled": doubled(by_all, layout=layout),
        "ours_cpu_ms": ours_ms,
        "eplb_hierarchical_cpu_ms": by_node_ms if groups % nodes == 0 else None,
        "eplb_global_cpu_ms": by_all_ms,
    }


def doubled(expert_of_slot: Ints, *, layout: Layout) -> int:
    places = expert_of_slot * layout.gpus + layout.gpu_of_slot
    return sum(len(row) - len(np.unique(row)) for row in places)


def _timed(place: Callable[[], Ints]) -> tuple[Ints, float]:
    """The placement, and the median time in milliseconds of the processor."""
    placed, times_s = place(), []
    for _ in range(REPEATS):
        started_s = time.process_time()
        place()
        times_s.append(time.process_time() - started_s)
    return placed, 1e3 * statistics.median(times_s)
