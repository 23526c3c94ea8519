"""The work of a row from its sources: the built-in mix, measured rates, recorded traces; and a share that trains.

The first line of a text identifies it: rates (`read_rates`) give the course of the load, requests (`fleet.traces`)
give the requests.  Any number of traces and at most one file of rates can be combined.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.documents import RuleError
from fleet.traces import read_trace
from power.server_model import BLOOM_A100, ServerModel
from power.workload.fitting import course, is_rates, read_rates
from power.workload.generated import PEAK_UTILIZATION, generated_work
from power.workload.jobs import PROVISIONED_W, split_servers, training_jobs
from power.workload.load_profile import Curve, Shape
from power.workload.trace_replay import UTILIZATION, Recorded, batching, traced_work
from power.workload.workload import Work


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """The sources of a row's work; without any, the built-in generator."""

    traces: tuple[Recorded, ...] = ()
    shape: Shape | Curve | None = None

    def model(self, base: ServerModel = BLOOM_A100) -> ServerModel:
        """Return the batch size that defines the load: 32 for traces, an assumption, and one for the generator."""
        return batching(base) if self.traces else base

    def work(
        self,
        *,
        servers: int,
        days: float = 14.0,
        seed: int = 0,
        training_share: float = 0.0,
        model: ServerModel | None = None,
        provisioned_w: float = PROVISIONED_W,
        load: float | None = None,
    ) -> Work:
        """Return the work of a row of `servers` in all; `load` is the utilisation at the peak, else the usual one."""
        model = model or self.model()
        serving, training = split_servers(servers, training_share)
        jobs = training_jobs(servers=training, seed=seed, model=model, provisioned_w=provisioned_w)
        if not self.traces:
            return generated_work(
                servers=serving,
                days=days,
                seed=seed,
                shape=self.shape,
                model=model,
                peak_utilization=PEAK_UTILIZATION if load is None else load,
                jobs=jobs,
            )
        return traced_work(
            self.traces,
            servers=serving,
            days=days,
            seed=seed,
            model=model,
            utilization=UTILIZATION if load is None else load,
            shape=self.shape,
            jobs=jobs,
        )


def read_sources(files: Sequence[tuple[str, str]]) -> Sources:
    """Return the sources from (name, text) of each file."""
    rates = [(name, text) for name, text in files if is_rates(text)]
    if len(rates) > 1:
        names = ", ".join(name for name, _ in rates)
        raise RuleError([(("trace",), f"at most one file of rates can shape the day, got {names}")])
    traces = tuple(
        Recorded(name.partition(".")[0], read_trace(text, name=name)) for name, text in files if not is_rates(text)
    )
    return Sources(traces, course(*read_rates(rates[0][1], name=rates[0][0])) if rates else None)
