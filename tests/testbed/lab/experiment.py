"""Describes one run of the lab: the workload, the injected faults, and the load of the machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from faults.detector import Job
from tests.testbed.lab.injections import Injection
from tests.testbed.lab.records import BEAT_S
from tests.testbed.lab.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Holds a workload, the faults injected from outside, and the number of busy processes."""

    name: str
    workload: Workload
    injections: tuple[Injection, ...] = ()
    rate_mbit: float = 200.0
    busy: int = 0
    period_s: float = 0.25
    # A train of 64 KiB each quarter second takes one hundredth of a link of 200 Mbit/s.
    probe_bytes: int | None = 64 << 10  # the recorders probe their neighbours with trains of this size
    probe_every_s: float = 2.0  # per peer: at most one train per sample to seven peers, so that no two overlap

    def job(self) -> Job:
        """Put one rank on each node, all in one group."""
        ranks = tuple(range(self.workload.ranks))
        return Job(nodes=len(ranks), rank_node=ranks, groups=(ranks,), look_period_s=self.period_s, heartbeat_s=BEAT_S)

    def run_entry(self, *, congestion_control: str) -> dict[str, Any]:
        """Return the content of run.json besides the recorder's part; it never contains the injected faults."""
        load = self.workload
        return {
            "n": load.ranks,
            "dur": load.duration_s,
            "base_mbit": self.rate_mbit,
            "ar_bytes": load.all_reduce_bytes,
            "a2a_bytes_per_peer": load.all_to_all_bytes,
            "pp_bytes": load.pass_bytes,
            "sample_hz": 1.0 / self.period_s,
            "tcp_congestion_control": congestion_control,
        }

    def truth(self, *, started_s: float, done: Mapping[Injection, float], loadavg: tuple[float, ...]) -> dict[str, Any]:
        """Return the injected faults with their times, for evaluation."""
        outside = [{**asdict(what), "t_real": at_s} for what, at_s in done.items()]
        inside = [{**asdict(what), "kind": f"rank:{what.what}"} for what in self.workload.inner]
        events = [{key: value for key, value in event.items() if value is not None} for event in outside + inside]
        return {
            "n": self.workload.ranks,
            "seed": self.workload.seed,
            "library": self.workload.library,
            "t_go": started_s,
            "dur": self.workload.duration_s,
            "base_mbit": self.rate_mbit,
            "compute_ms": self.workload.compute_ms,
            "busy": self.busy,
            "loadavg": loadavg,
            "events": events,
        }
