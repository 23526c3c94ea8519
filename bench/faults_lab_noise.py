"""How much healthy traffic varies in the lab: the noise that the scale simulator is given.

Healthy runs of eight ranks, on the machine as it is and with busy processes beside.  Of each pair the effective
bandwidth (bytes acknowledged over the time with bytes outstanding) in windows of some lengths; its logarithm's standard
deviation within the pair, and between pairs that do the same work.  Of each rank the time between its operations: its
spread over steps, and between ranks.  Of one-way probes the least delay of a few in a row, for those that meet the
job's own traffic wait behind it.
"""

import math
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, pstdev, stdev

from api.cli.faults.recordings import open_recording
from bench.harness import Row
from faults.observations import Collective, Observation, PointToPoint, Probe, Socket
from tests.testbed.lab import network
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.session import run_experiment
from tests.testbed.lab.workload import Workload

PYTHON = "FLEETWRIGHT_LAB_PYTHON"
KEEP = "FLEETWRIGHT_LAB_KEEP"
RANKS = 8
BUSY = 4
DURATION_S = 45.0
PROBE_BYTES = 64 << 10
MIN_OF = (1, 3, 5)
SETTLED_S = 2.0
WINDOWS_S = (2.5, 5.0, 10.0)
Pair = tuple[int, int]


def run() -> list[Row]:
    network.check_allowed()
    return [{"busy_beside": busy, **row} for busy in (0, BUSY) for row in _measured(busy)]


def _measured(busy: int) -> list[Row]:
    python = os.environ.get(PYTHON)
    workload = Workload(ranks=RANKS, duration_s=DURATION_S, library="gloo" if python else "own", seed=1 + busy)
    experiment = Experiment(name="healthy", workload=workload, busy=busy, probe_bytes=PROBE_BYTES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(os.environ.get(KEEP, scratch)) / f"healthy{busy}"
        run_experiment(experiment, folder=folder, python=Path(python) if python else None)
        return figures(folder)


def figures(folder: Path) -> list[Row]:
    recording = open_recording(folder)
    samples = _samples(recording.observations)
    rows = []
    for window_s in WINDOWS_S:
        logs = {pair: _log_bandwidths(of_pair, window_s) for pair, of_pair in samples.items()}
        nodes = recording.job.nodes
        kinds = {
            "ring": {pair: got for pair, got in logs.items() if (pair[0] - pair[1]) % nodes == 1},
            "all-to-all": {
                pair: got for pair, got in logs.items() if (pair[0] - pair[1]) % nodes not in {1, nodes - 1}
            },
        }
        rows += [
            _bandwidth_row(f"{kind}, {folder.name}", window_s, chosen)
            for kind, chosen in kinds.items()
            if _is_long_enough(chosen)
        ]
    return [
        *rows,
        *_probe_rows(f"probes, {folder.name}", recording.observations),
        _gap_row(f"computing, {folder.name}", recording.observations),
    ]


def _samples(observations: Sequence[Observation]) -> Mapping[Pair, list[tuple[float, Socket]]]:
    found: defaultdict[Pair, list[tuple[float, Socket]]] = defaultdict(list)
    for observation in observations:
        if isinstance(observation.values, Socket) and observation.peer is not None and observation.at_s > SETTLED_S:
            found[observation.node, observation.peer].append((observation.at_s, observation.values))
    return found


def _log_bandwidths(samples: Sequence[tuple[float, Socket]], window_s: float) -> list[float]:
    """Of windows that do not overlap."""
    found, (start_s, start) = [], samples[0]
    for at_s, now in samples[1:]:
        if at_s - start_s < window_s - 0.1:
            continue
        busy_us, acked_bytes = now.busy_us - start.busy_us, now.acked_bytes - start.acked_bytes
        if busy_us > 0 and acked_bytes > 0:
            found.append(math.log(8.0 * acked_bytes / busy_us))  # Mbit/s
        start_s, start = at_s, now
    return found


def _is_long_enough(logs: Mapping[Pair, Sequence[float]]) -> bool:
    """Whether the recording is long enough for windows of that length."""
    return sum(len(got) >= 2 for got in logs.values()) >= 2


def _bandwidth_row(name: str, window_s: float, logs: Mapping[Pair, Sequence[float]]) -> Row:
    enough = [got for got in logs.values() if len(got) >= 2]
    means = [fmean(got) for got in enough]
    residuals = [value - mean for got, mean in zip(enough, means, strict=True) for value in got]
    freedom = len(residuals) - len(means)
    spread = math.sqrt(sum(value * value for value in residuals) / freedom)
    return {
        "case": name,
        "window_s": window_s,
        "pairs": len(enough),
        "windows": len(residuals),
        "mean_mbit": math.exp(fmean(means)),
        "sd_within_pair": spread,
        "sd_within_pair_robust": 1.4826
        * median(abs(value) for value in residuals)
        * math.sqrt(len(residuals) / freedom),
        "sd_between_pairs": stdev(means),
    }


def _probe_rows(name: str, observations: Sequence[Observation]) -> Iterator[Row]:
    """The least of so many in a row, and of all for comparison."""
    delays_s: defaultdict[Pair, list[float]] = defaultdict(list)
    for observation in observations:
        if isinstance(observation.values, Probe) and observation.peer is not None and observation.at_s > SETTLED_S:
            delays_s[observation.peer, observation.node].append(
                observation.values.received_s - observation.values.sent_s
            )
    for together in MIN_OF if delays_s else ():
        least = [
            [min(got[at : at + together]) for at in range(0, len(got) - together + 1, together)]
            for got in delays_s.values()
        ]
        logs = [math.log(delay_s / median(got)) for got in least for delay_s in got]
        medians = [median(got) for got in least]
        yield {
            "case": name,
            "least_of": together,
            "pairs": len(least),
            "windows": len(logs),
            "delay_median_ms": 1000.0 * median(medians),
            "sd_within_pair": pstdev(logs),
            "sd_within_pair_robust": 1.4826 * median(map(abs, logs)),
            "beyond_1_2_times_share": sum(log > math.log(1.2) for log in logs) / len(logs),
            "sd_between_pairs": stdev(map(math.log, medians)),
        }


def _gap_row(name: str, observations: Sequence[Observation]) -> Row:
    """From a rank's last operation in a step to its first in the next."""
    through: dict[int, float] = {}
    gaps: defaultdict[int, list[float]] = defaultdict(list)
    for observation in observations:
        rank, values = observation.rank or 0, observation.values
        if isinstance(values, PointToPoint):
            through[rank] = max(values.received_s, values.sent_s)
        elif isinstance(values, Collective) and values.op == "all_reduce" and rank in through:
            gaps[rank].append(values.arrived_s - through[rank])
    medians = [median(got) for got in gaps.values()]
    logs = [math.log(gap / median(got)) for got in gaps.values() for gap in got if gap > 0.0]
    robust = 1.4826 * median(map(abs, logs))
    return {
        "case": name,
        "windows": len(logs),
        "gap_median_ms": 1000.0 * median(medians),
        "sd_of_a_step": robust,
        "sd_of_a_step_with_tails": pstdev(logs),
        "steps_beyond_5_sd_share": sum(abs(value) > 5.0 * robust for value in logs) / len(logs),
        "sd_between_ranks": stdev(map(math.log, medians)),
    }
