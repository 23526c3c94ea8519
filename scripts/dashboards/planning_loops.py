"""The row of planning loops: what they observe, forecast and decide, and whether the predictions hold."""

from api.schemas.planning_loops import LoopPhase
from scripts.dashboards.grafana import Colour, Panel, bars, durations, lines, steps, timeline
from scripts.dashboards.promql import HERE, highest, increase, meaning, one, quantiles, state

PHASE_COLOURS = {
    LoopPhase.WARMING_UP: Colour.CALM,
    LoopPhase.STEADY: Colour.GOOD,
    LoopPhase.OBSERVED: Colour.ODD,
    LoopPhase.RECOMMENDED: Colour.ODD,
    LoopPhase.APPLIED: Colour.GOOD,
    LoopPhase.HOLDING: Colour.WARN,
    LoopPhase.FROZEN: Colour.OFF,
    LoopPhase.FAILED: Colour.BAD,
}


def planning_loops() -> list[Panel]:
    return [
        timeline(
            "Phase of planning loops",
            "What each loop did in its last window; holding: the demand is not usable, so the last decision stays.",
            one(
                state("fleetwright_planning_loop_phase", "phase", LoopPhase, of="planning_loop", where=HERE),
                legend="{{planning_loop}}",
            ),
            meanings=[meaning(position, phase, PHASE_COLOURS[phase]) for position, phase in enumerate(LoopPhase)],
        ),
        lines(
            "Arrivals and forecast",
            "Requests per second. Dashed: the quantile over the warm-up time, which is planned for.",
            highest(
                "fleetwright_planning_loop_forecast_rps",
                by="planning_loop, workload",
                legend="{{planning_loop}} {{workload}} forecast",
                dashed=True,
            ),
            highest(
                "fleetwright_planning_loop_arrivals_rps",
                by="planning_loop, workload",
                legend="{{planning_loop}} {{workload}} arrivals",
            ),
        ),
        steps(
            "Wanted replicas",
            "Replicas of the last decision of each loop, also where its mode does not set the plan.",
            highest("fleetwright_planning_loop_wanted_replicas", by="planning_loop, target, gpu"),
        ),
        steps(
            "Problems of the demand",
            "Reasons why the demand of the last window is not usable; the status of the loop lists them.",
            highest("fleetwright_planning_loop_problems", by="planning_loop"),
            width=6,
        ),
        durations(
            "Age of the status of planning loops",
            "Time since the last report on each loop.",
            highest("fleetwright_planning_loop_status_age_seconds", by="planning_loop"),
            width=6,
        ),
        lines(
            "Observed over predicted latency",
            "Time to first token (ttft) and per output token (tpot); 1: as predicted.",
            highest("fleetwright_planning_loop_drift_ratio", by="planning_loop, gpu, kind"),
            width=6,
        ),
        steps(
            "Measurements to repeat",
            "1: the observed latency is outside the interval of the prediction.",
            highest("fleetwright_planning_loop_needs_refit", by="planning_loop, gpu"),
            width=6,
        ),
        bars(
            "Windows",
            "Windows that the leader decided, by the phase after them.",
            increase("fleetwright_planning_windows_total", by="phase"),
        ),
        durations(
            "Time to decide a window",
            "From reading the demand to the report, by percentile.",
            *quantiles("fleetwright_planning_window_duration_seconds"),
        ),
    ]
