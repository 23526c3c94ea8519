"""How even `placement.balance` places experts, and how fast, beside both policies of EPLB and the proven bound.

The last rows have GPUs of two speeds: half of them are half as fast, in turns or by node.  EPLB knows no speeds and
needs equal slots.

Imbalance is the mean over layers of the fullest GPU over the even share, for engines that share an expert's tokens
evenly among its copies.  Times are of the processor, on one core, the median of `REPEATS` runs after one to warm up;
`bench.eplb` places all layers at once and is many times quicker than what is published.
`doubled` counts the copies that EPLB's global policy lays on a GPU that already has that expert: wasted memory, and
not allowed to us.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.eplb import eplb, eplb_global
from bench.expert_loads import GROUPS, Case, named, synthetic
from bench.harness import Row, processor_ms
from placement.arrays import Ints
from placement.balance import balanced
from placement.bounds import lower_bound
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import check_slots

REPEATS = 7
SAME = 1 + 1e-9
OF_SPEEDS = ("decode_in1000out1000", "prefill_in1024", "prefill_in4096")


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


def run() -> list[Row]:
    deepseek = [_row(named(name), setting, groups=GROUPS) for setting, names in _DEEPSEEK.items() for name in names]
    others = [_row(synthetic(model), setting, groups=1) for model, settings in _OTHERS.items() for setting in settings]
    return [*deepseek, *others, *(_row_of_speeds(named(name), *kind) for name in OF_SPEEDS for kind in _speeds())]


def _row(case: Case, setting: Setting, *, groups: int) -> Row:
    tokens, slots, gpus, nodes = case.tokens, setting.slots, setting.gpus, setting.nodes
    layout = Layout.even(slots=slots, gpus=gpus, nodes=nodes)
    ours, ours_ms = processor_ms(lambda: balanced(tokens, layout=layout), repeats=REPEATS)
    by_node = eplb(tokens, slots=slots, groups=groups, nodes=nodes, gpus=gpus)
    by_all, by_all_ms = processor_ms(lambda: eplb_global(tokens, slots=slots, gpus=gpus), repeats=REPEATS)
    check_slots(ours, experts=tokens.shape[1], layout=layout)
    reached, policy, whole = (imbalance(placed, tokens, layout=layout).mean for placed in (ours, by_node, by_all))
    bound = float(lower_bound(tokens, layout=layout).mean())
    return {
        "loads": f"{case.name} ({case.source})",
        "slots / GPUs / nodes": f"{slots} / {gpus} / {nodes}",
        "bound": bound,
        "ours": reached,
        "eplb_hierarchical": policy if groups % nodes == 0 else None,
        "eplb_global": whole,
        "never_worse": "yes" if reached <= min(policy, whole) * SAME else "no",
        "doubled": doubled(by_all, layout=layout),
        "ours_cpu_ms": ours_ms,
        "eplb_global_cpu_ms": by_all_ms,
    }


def doubled(expert_of_slot: Ints, *, layout: Layout) -> int:
    places = expert_of_slot * layout.gpus + layout.gpu_of_slot
    return sum(len(row) - len(np.unique(row)) for row in places)


def _speeds() -> Iterator[tuple[str, Layout]]:
    gpus, nodes = 32, 4
    node_of_gpu = [gpu * nodes // gpus for gpu in range(gpus)]
    in_turns = [1.0 if gpu % 2 else 0.5 for gpu in range(gpus)]
    by_node = [1.0 if node % 2 else 0.5 for node in node_of_gpu]
    for kind, speeds in (("in turns", in_turns), ("by node", by_node)):
        yield f"288 / 32 / 4, two speeds {kind}", Layout.even(slots=288, gpus=gpus, nodes=nodes, speeds=speeds)
        slots = [12 if speed == 1.0 else 8 for speed in speeds]
        uneven = Layout.of(node_of_gpu=node_of_gpu, slots_of_gpu=slots, speeds=speeds)
        yield f"320 / 32 / 4, two speeds {kind}, 12 and 8 slots", uneven


def _row_of_speeds(case: Case, kind: str, layout: Layout) -> Row:
    ours, ours_ms = processor_ms(lambda: balanced(case.tokens, layout=layout), repeats=REPEATS)
    row = {
        "loads": f"{case.name} ({case.source})",
        "slots / GPUs / nodes": kind,
        "bound": float(lower_bound(case.tokens, layout=layout).mean()),
        "ours": imbalance(ours, case.tokens, layout=layout).mean,
        "ours_cpu_ms": ours_ms,
    }
    if layout.is_even:
        plan = eplb_global(case.tokens, slots=layout.slots, gpus=layout.gpus)
        row["eplb_global"] = imbalance(plan, case.tokens, layout=layout).mean
    return row
