"""Between the stored state and report of a planning loop, and the values of the pure step."""

from collections.abc import Mapping, Sequence

from api.schemas.planning_loops import (
    DriftMemory,
    DriftReport,
    LatencyStatistics,
    LoopState,
    PlanningLoopSpec,
    SizeStatistics,
    WorkloadDemand,
)
from deploy.controller.plan_reader import part_of
from planner.demand.density import Density
from planner.demand.drift import Drift, DriftState
from planner.demand.replicas import ENTIRE
from planner.demand.windows import DemandWindow, PartTraffic
from planner.forecast import ForecastState
from planner.planning_loop import LoopMemory, LoopSettings, MachineKey, OptionKey
from planner.result import Allocation


def settings_of(spec: PlanningLoopSpec) -> LoopSettings:
    return LoopSettings(
        window_s=spec.window_s,
        warm_up_s=spec.warm_up_s,
        quantile=spec.quantile,
        band=spec.band,
        patience=spec.patience,
        size_windows=spec.size_windows,
    )


def memory_of(state: LoopState) -> LoopMemory:
    return LoopMemory(
        forecasts={name: ForecastState.model_validate(stored) for name, stored in state.forecasts.items()},
        sizes=dict(state.sizes),
        drifts={
            _machine(key): DriftState(tpot_log=each.tpot_log, ttft_log=each.ttft_log, requests=each.requests)
            for key, each in state.drifts.items()
        },
        saving_windows=state.saving_windows,
    )


def state_with(state: LoopState, memory: LoopMemory) -> LoopState:
    return state.model_copy(
        update={
            "forecasts": {name: each.model_dump(mode="json") for name, each in memory.forecasts.items()},
            "sizes": {
                name: tuple(tuple(round(count, 2) for count in row) for row in rows)
                for name, rows in memory.sizes.items()
            },
            "drifts": {
                _text(key): DriftMemory(tpot_log=each.tpot_log, ttft_log=each.ttft_log, requests=each.requests)
                for key, each in memory.drifts.items()
            },
            "saving_windows": memory.saving_windows,
        }
    )


def demand_report(window: DemandWindow, *, forecast_rps: float) -> WorkloadDemand:
    return WorkloadDemand(
        arrivals_rps=window.arrivals_rps,
        completions_rps=window.completions_rps,
        forecast_rps=forecast_rps,
        input_tokens=_sizes(window.input_tokens),
        output_tokens=_sizes(window.output_tokens),
        ttft_s=_latency(window.ttft_s),
        tpot_s=_latency(window.tpot_s),
        running=window.running,
        queued=window.queued,
        kv_usage=window.kv_usage,
        prefix_hit_rate=window.prefix_hit_rate,
        error_rate=window.error_rate,
    )


def drift_reports(drifts: Mapping[MachineKey, Drift]) -> dict[str, DriftReport]:
    return {
        _text(key): DriftReport(
            tpot_ratio=drift.tpot_ratio,
            ttft_ratio=drift.ttft_ratio,
            rate_scale=drift.rate_scale,
            needs_refit=drift.needs_refit,
        )
        for key, drift in drifts.items()
    }


def traffic_by_option(
    running: Sequence[Allocation], windows: Mapping[str, DemandWindow]
) -> dict[OptionKey, PartTraffic]:
    """What the replicas of each option in force served, where a source distinguishes the parts of its target."""
    found: dict[OptionKey, PartTraffic] = {}
    for entry in running:
        parts = {part: each for part, each in windows[entry.workload].parts.items() if part != ENTIRE}
        part = part_of(entry, parts)
        if part is not None:
            found[entry.workload, entry.option] = parts[part]
    return found


def _sizes(density: Density | None) -> SizeStatistics | None:
    if density is None:
        return None
    at_least, at_most = density.bracket(0.99)
    return SizeStatistics(
        mean=density.mean,
        p50=density.quantile(0.5),
        p99=density.quantile(0.99),
        p99_at_least=at_least,
        p99_at_most=at_most,
    )


def _latency(density: Density | None) -> LatencyStatistics | None:
    if density is None:
        return None
    return LatencyStatistics(mean=density.mean, p50=density.quantile(0.5), p99=density.quantile(0.99))


def _text(key: MachineKey) -> str:
    return "/".join(key)


def _machine(text: str) -> MachineKey:
    workload, _, gpu = text.rpartition("/")
    return workload, gpu
