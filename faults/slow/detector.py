"""The live slow detector: wires and ranks that make the job slow, and what looks like it and is not hardware."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from faults.detector import Job
from faults.fabric import Floats
from faults.observations import Collective, Heartbeat, Observation, Pass, Probe
from faults.slow.directions import Delays, Ways, beyond, from_delays, from_waiting, legs, waiting_bytes
from faults.slow.gaps import Gaps, Late
from faults.slow.localise import Entity
from faults.slow.persistence import Persistence
from faults.slow.settings import SlowSettings
from faults.slow.sockets import Sockets, is_of_sockets
from faults.slow.steps import Steps, harm
from faults.slow.wires import Looked, Slow, Wires
from faults.slow.words import Wire, of_foreign, of_rank, of_unread, of_wire, of_workload
from faults.slow.workload import FEWEST_STEPS, Lost, lost
from faults.verdict import Verdict

STALLED_STEPS: Final = 5.0  # of usual length without a step: a hang, which is not judged here
LEAST_STALL_S: Final = 1.5
FEWEST_USUAL: Final = 10  # steps
SECOND_LEG: Final = 0.2  # of what waits for the first peer, from which a second one shows that it is the NIC
PASS_SHARE: Final = 0.5  # of a link's slowdown, by which other ways of one end must be slower too
FEW: Final = 3  # steps, in the shorter window that measures harm


class SlowDetector:
    """Feed it in the order in which things became known; ask it as often as liked: it looks every `every_s`."""

    def __init__(self, job: Job, settings: SlowSettings | None = None) -> None:
        s = settings or SlowSettings()
        ranks = len(job.rank_node)
        self._job, self._settings = job, s
        self._sockets = Sockets(job.nodes, 2 * s.window_s)
        self._wires = Wires(self._sockets, s)
        self._delays = Delays(job.nodes, s.history_s)
        self._steps, self._gaps = Steps(ranks), Gaps(ranks, s)
        self._accused: Persistence[Slow] = Persistence(1, 1, 2 * s.every_s)  # before the harm gate
        self._slow: Persistence[Wire] = Persistence(s.hits, s.of, s.gone_s)
        self._late: Persistence[Late] = Persistence(s.late_hits, s.of, s.gone_s)
        self._foreign: Persistence[tuple[int, int]] = Persistence(s.hits, s.of, s.gone_s)
        self._unread: Persistence[int] = Persistence(s.hits, s.of, s.gone_s)
        self._lost: Persistence[Lost] = Persistence(s.hits, s.of, s.gone_s)
        self._first_s: float | None = None
        self._looked_s = -np.inf
        self._onset_s: float | None = None  # steps after this are no baseline
        self._verdicts: tuple[Verdict, ...] = ()

    def see(self, observation: Observation) -> None:
        """Take one in."""
        if self._first_s is None:
            self._first_s = observation.at_s
        if is_of_sockets(observation):
            self._sockets.see(observation)
            return
        if isinstance(observation.values, Collective | Heartbeat):
            self._steps.see(observation)
        if isinstance(observation.values, Collective | Pass):
            self._gaps.see(observation)
        if isinstance(observation.values, Pass | Probe):
            self._delays.see(observation)

    def judge(self, now_s: float) -> Sequence[Verdict]:
        """The slow faults that are believed now, and what explains slowness that is none."""
        s = self._settings
        early = self._first_s is None or now_s < self._first_s + s.warm_up_s + s.window_s
        if early or now_s < self._looked_s + s.every_s - 1e-6 or self._stalled(now_s):
            return self._verdicts
        self._looked_s = now_s
        late = {late.rank: late for late in self._gaps.late(self._step_s(now_s))}
        looked = self._wires.look(now_s, suspected=self._suspected())
        self._slow.look(now_s, {} if looked is None else self._harmful(looked, list(late.values()), now_s))
        self._late.look(now_s, dict(late.items()))
        self._explanations(looked, now_s)
        self._mark_onset(now_s)
        self._verdicts = tuple(self._words())
        return self._verdicts

    def _suspected(self) -> bool:
        return self._slow.suspected() or self._late.suspected()

    def _stalled(self, now_s: float) -> bool:
        last_s = self._steps.last_s()
        return last_s is not None and now_s - last_s > max(LEAST_STALL_S, STALLED_STEPS * self._step_s(last_s))

    def _step_s(self, now_s: float) -> float:
        recent = self._steps.between(now_s - self._settings.window_s, now_s)
        return float(np.median(recent)) if recent.size else 0.0

    def _mark_onset(self, now_s: float) -> None:
        """The step baseline ends a window before the first suspicion, and goes on when that was nothing."""
        if not self._suspected():
            self._onset_s = None
        elif self._onset_s is None:
            self._onset_s = now_s - self._settings.window_s

    def _explanations(self, looked: Looked | None, now_s: float) -> None:
        """What is not hardware."""
        self._foreign.look(now_s, {} if looked is None else {pair: pair for pair in looked.foreign})
        self._unread.look(now_s, {} if looked is None else {node: node for node in looked.unread})
        gaps_s = self._gaps.gaps_s(4 * FEWEST_STEPS)
        self._lost.look(now_s, {each.cause: each for each in lost(gaps_s, self._step_s(now_s))})

    def _ratio(self, since_s: float, now_s: float) -> tuple[float, float] | None:
        """Step time against its baseline, and the part that is certain; None without a baseline.

        Of the last half window, or of all steps since the suspicion where they make it more certain.
        """
        s = self._settings
        first_s = self._steps.first_s()
        if first_s is None:
            return None
        until_s = now_s - 2 * s.window_s if self._onset_s is None else self._onset_s
        usual = self._steps.between(first_s + s.warm_up_s, until_s)
        if usual.size < FEWEST_USUAL:
            return None
        starts = {min(since_s, now_s - s.window_s / 2), now_s - s.window_s / 2}
        return max((harm(self._steps.recent(start, now_s, FEW), usual) for start in starts), key=lambda found: found[1])

    def _harmful(self, looked: Looked, late: Sequence[Late], now_s: float) -> dict[Hashable, Wire]:
        """What has passed the harm gate, with its direction."""
        s = self._settings
        self._accused.look(now_s, {slow.key: slow for slow in looked.slow})
        since_s = {each.key: each.first_s for each in self._accused.confirmed()}
        if not looked.slow:
            return {}
        by_ranks = sum(each.harm for each in late)  # of the step: no wire is to blame for that
        data, acks = waiting_bytes(
            self._sockets, looked.bandwidth_mbit, from_s=now_s - s.window_s, to_s=now_s, settings=s
        )
        delay, error = self._delays.excess(now_s - s.window_s, now_s)
        believed = [each.found[-1].slow for each in self._slow.confirmed()]
        foreign = {node for pair in looked.foreign for node in pair}
        passed: dict[Hashable, Wire] = {}
        for each in looked.slow:
            slow = _by_passes(_one_pair(each, data, acks), delay, error)
            if slow.entity.ends & foreign:
                continue
            if any(slow.key != other.key and slow.entity.ends & other.entity.ends for other in believed):
                continue  # what is held up by a fault that has been named is not another one
            measured = self._ratio(since_s.get(slow.key, now_s), now_s)
            ratio = self._costs(slow, measured, by_ranks)
            if ratio is not None:
                node = slow.entity.node
                ways = Ways(from_waiting(data, acks, node), from_delays(delay, error, node))
                passed[slow.key] = Wire(slow, ways, ratio, slow.own and measured is not None)
        return _apart(passed)

    def _costs(self, slow: Slow, measured: tuple[float, float] | None, by_ranks: float) -> float | None:
        """By how much steps are longer for it, where that is enough and what the wire lacks can explain it."""
        s = self._settings
        implied = 1.0 / (1.0 - slow.saved)
        if not slow.own or measured is None:
            return implied if implied >= s.least_implied_harm else None
        ratio, certain = (value * max(0.0, 1.0 - by_ranks) for value in measured)
        sure = certain > 1.0 or implied >= s.plain_harm
        return ratio if sure and min(ratio, implied) >= s.least_harm else None

    def _words(self) -> Iterator[Verdict]:
        yield from (of_wire(each, self._settings.window_s) for each in self._slow.confirmed())
        yield from (of_rank(each, self._job.rank_node[each.found[-1].rank]) for each in self._late.confirmed())
        yield from (of_foreign(each) for each in self._foreign.confirmed())
        yield from (of_unread(each) for each in self._unread.confirmed())
        yield from (of_workload(each) for each in self._lost.confirmed())


def _one_pair(slow: Slow, data: Floats, acks: Floats) -> Slow:
    """A NIC whose bytes wait for one peer only is that link."""
    entity = slow.entity
    share, peer = legs(data, acks, entity.node)
    if entity.peer is not None or peer is None or share >= SECOND_LEG:
        return slow
    sends = data[entity.node].sum() + acks[:, entity.node].sum() >= data[:, entity.node].sum() + acks[entity.node].sum()
    pair = (entity.node, peer) if sends else (peer, entity.node)
    return replace(slow, entity=Entity(*pair, row=entity.slowdown))


def _by_passes(slow: Slow, delay: Floats, error: Floats) -> Slow:
    """A link whose sender delays its passes to others too is its Tx; whose receiver gets others' late, its Rx."""
    entity = slow.entity
    if entity.peer is None:
        return slow
    out, into = beyond(delay, error, entity.node, entity.peer)
    if max(out, into) < PASS_SHARE * entity.row or min(out, into) > max(out, into) / 2:
        return slow
    nic = Entity(entity.node, None, row=entity.row)
    return replace(slow, entity=nic if out > into else Entity(entity.peer, None, row=0.0, column=entity.row))


def _apart(passed: dict[Hashable, Wire]) -> dict[Hashable, Wire]:
    """Without those that end where a NIC is accused, or a worse one ends."""
    ordered = sorted(passed.items(), key=lambda item: (item[1].slow.entity.peer is not None, -item[1].slow.saved))
    kept: dict[Hashable, Wire] = {}
    for key, wire in ordered:
        if not any(wire.slow.entity.ends & other.slow.entity.ends for other in kept.values()):
            kept[key] = wire
    return kept
